// Ends of operations of a transport of processes after errors: lateness, cancellation, disagreement, members
// that closed, died or are in another epoch.
#include "process_world.hpp"

#include <atomic>
#include <chrono>
#include <functional>

namespace tenon::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(ProcessDeadlines, NameTheLateRankAndTheOperationOnEveryMember) {
  // A deadline that a slow machine also meets: the first reduction must succeed.
  const auto world = make_process_world(3, 1.5);
  const auto errors = world->run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 1) sleep_ms(4000);
    EXPECT_THROW(communicator.all_reduce(view_of(data), ReduceOp::kSum), DeadlineError);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);  // fails after a lost member
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 did not join all_reduce #1 of 'replicas' within 1.5 s"),
                             HasSubstr("rank 1 has started 1 operations")));
  }
}

TEST(ProcessDeadlines, NameAMissingSenderAndReceiver) {
  for (const bool send : {true, false}) {
    const auto world = make_process_world(2, 0.75);
    const auto errors = world->run([&](int rank, Communicator& communicator) {
      std::vector<float> data(10);
      communicator.barrier();
      if (rank == 1) return sleep_ms(2000);
      send ? communicator.send(view_of(data), 1, 4) : communicator.receive(view_of(data), 1, 4);
    });
    EXPECT_THAT(errors[0],
                HasSubstr(send ? "rank 1 did not start the message of 'replicas' from rank 0 to rank 1 "
                                 "with tag 4 within 0.75 s"
                               : "rank 1 did not start the message of 'replicas' from rank 1 to rank 0 "
                                 "with tag 4 within 0.75 s"));
    EXPECT_EQ(errors[1], "");
  }
}

TEST(ProcessDeadlines, CountFromTheWaitNotFromTheStart) {
  const auto world = make_process_world(2, 1.5);
  const auto errors = world->run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    communicator.barrier();
    if (rank == 1) sleep_ms(1750);
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 0) sleep_ms(1700);
    communicator.wait(request);
  });
  EXPECT_EQ(errors, none(2));
}

TEST(ProcessCancel, WakesEverybodyAtOnceWithTheReason) {
  for (const bool whole : {false, true}) {
    const auto world = make_process_world(4);
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<int> cancelled{0};
    const auto errors = world->run([&](int rank, Communicator& communicator) {
      std::vector<float> data(10);
      try {
        if (rank == 0) communicator.all_reduce(view_of(data), ReduceOp::kSum);
        if (rank == 1) communicator.receive(view_of(data), 3, 0);
        if (rank == 2) communicator.send(view_of(data), 3, 1);
        if (rank == 3) {
          sleep_ms(50);
          whole ? world->cancel(3, "rank 3: disk full") : communicator.cancel("rank 3: disk full");
          communicator.barrier();
        }
      } catch (const CancelledError& error) {
        EXPECT_STREQ(error.what(), "rank 3: disk full");
        ++cancelled;
      }
      if (whole && rank == 3) {
        const auto later = world->open(rank, "later");
        EXPECT_EQ(text_of([&] { later->barrier(); }), "rank 3: disk full");
      }
    });
    EXPECT_EQ(errors, none(4));
    EXPECT_EQ(cancelled, 4);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // the deadline is 30 s
  }
}

TEST(ProcessDisagreement, IsAnErrorOnEveryMemberNamingBoth) {
  struct Case {
    const char* name;
    std::function<Request(Communicator&, std::vector<float>&, std::vector<double>&)> odd;
    const char* expected;
  };
  const Case cases[] = {
      {"kind", [](Communicator& c, auto& f, auto&) { return c.start_broadcast(view_of(f), 0); },
       "broadcast(f32 [12], root 0)"},
      {"dtype",
       [](Communicator& c, auto&, auto& d) { return c.start_all_reduce(view_of(d), ReduceOp::kSum); },
       "all_reduce(sum, f64 [12])"},
      {"op", [](Communicator& c, auto& f, auto&) { return c.start_all_reduce(view_of(f), ReduceOp::kMax); },
       "all_reduce(max, f32 [12])"},
      {"shape",
       [](Communicator& c, auto& f, auto&) {
         return c.start_all_reduce(view_of(f).rows(0, 5), ReduceOp::kSum);
       },
       "all_reduce(sum, f32 [5])"},
  };
  for (const Case& c : cases) {
    const auto world = make_process_world(5, 5);
    const auto errors = world->run([&](int rank, Communicator& communicator) {
      std::vector<float> floats(12);
      std::vector<double> doubles(12);
      if (rank == 2) sleep_ms(20);
      communicator.wait(rank == 2 ? c.odd(communicator, floats, doubles)
                                  : communicator.start_all_reduce(view_of(floats), ReduceOp::kSum));
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error,
                  AllOf(HasSubstr("operation #0 of 'replicas'"), HasSubstr("all_reduce(sum, f32 [12])"),
                        HasSubstr(std::string("rank 2 started ") + c.expected)))
          << c.name;
    }
  }
}

// The last member of a chain differs: those at its beginning have long sent their data.
TEST(ProcessDisagreement, OfRootsReachesMembersThatNeedNothing) {
  const auto world = make_process_world(4, 5);
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    std::vector<float> data(12);
    if (rank == 3) sleep_ms(100);
    communicator.broadcast(view_of(data), rank == 3 ? 1 : 0);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 3 started broadcast(f32 [12], root 1)"));
}

TEST(ProcessDisagreement, OfCountsNamesThePair) {
  const auto world = make_process_world(3, 5);
  const auto errors = world->run([](int rank, Communicator& communicator) {
    std::vector<float> send(6), receive(rank == 1 ? 7 : 6);
    const std::int64_t send_counts[] = {2, 2, 2};
    const std::int64_t receive_counts[3][3] = {{2, 2, 2}, {3, 2, 2}, {2, 2, 2}};
    communicator.wait(
        communicator.start_all_to_all(view_of(send), send_counts, view_of(receive), receive_counts[rank]));
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 0 sends 2 elements to rank 1, which expects 3"));
}

TEST(ProcessDisagreement, OfAMessageNamesBothEnds) {
  const auto world = make_process_world(2, 5);
  const auto errors = world->run([](int rank, Communicator& communicator) {
    std::vector<float> three(3);
    std::vector<double> four(4);
    if (rank == 0) communicator.send(view_of(three), 1, 9);
    if (rank == 1) communicator.receive(view_of(four), 0, 9);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("tag 9: rank 0 sends f32 [3], but rank 1 expects f64 [4]"));
}

TEST(ProcessArguments, AreRefusedAndTheGroupStillWorks) {
  const auto world = make_process_world(2);
  const auto errors = world->run([](int, Communicator& communicator) {
    std::vector<float> data(6);
    EXPECT_THAT(text_of([&] { communicator.send(view_of(data), 2, 0); }),
                HasSubstr("member 2 does not exist"));
    EXPECT_THAT(text_of([&] { communicator.all_gather(view_of(data)); }), HasSubstr("expected one row"));
    EXPECT_THAT(text_of([&] { communicator.wait(Request{77}); }), HasSubstr("waits twice"));
    EXPECT_THAT(text_of([&] { communicator.wait(Request{0}); }), HasSubstr("waits twice"));
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    await([&] { return communicator.done(request); });
    communicator.wait(request);
    EXPECT_THAT(text_of([&] { communicator.wait(request); }), HasSubstr("waits twice"));
    communicator.barrier();
  });
  EXPECT_EQ(errors, none(2));
}

TEST(ProcessGone, AMemberThatClosesEarlyIsNamed) {
  const auto world = make_process_world(3);
  const auto errors = world->run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank != 2) communicator.barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 closed 'replicas' without joining barrier #1"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], "");
}

TEST(ProcessGone, AnExceptionInAMemberCancelsTheOthers) {
  const auto world = make_process_world(2);
  std::atomic<bool> cancelled{false};
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    if (rank == 1) {
      communicator.start_receive(view_of(data), 0, 0);
      fail_run("loss is NaN");
    }
    try {
      communicator.all_reduce(view_of(data), ReduceOp::kSum);
    } catch (const CancelledError&) {
      cancelled = true;
    }
  });
  EXPECT_EQ(errors[1], "loss is NaN");
  EXPECT_TRUE(cancelled);
}

TEST(ProcessGone, ABrokenConnectionIsAnErrorAtOnceThatNamesTheRankAndTheOperation) {
  const auto world = make_process_world(3);
  std::vector<std::string> later(3);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    const auto idle = world->open(rank, "idle");
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    idle->barrier();
    if (rank == 2) {
      sleep_ms(50);
      world->kill(2);
      return;
    }
    const std::string error = text_of([&] { communicator.all_reduce(view_of(data), ReduceOp::kSum); });
    later[rank] = text_of([&] { idle->barrier(); });
    if (!error.empty()) fail_run(error);
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 2 is gone: its connection "),
                                    HasSubstr("during all_reduce #1 of 'replicas'")));
    EXPECT_THAT(later[rank], HasSubstr("rank 2 is gone: its connection "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ProcessGone, SurvivorsGoOnInANewEpoch) {
  const auto world = make_process_world(3);
  const int survivors[] = {0, 1};
  std::atomic<int> opened{0};
  const auto errors = world->run([&](int rank, Communicator& old) {
    std::vector<float> data(100000, 1);
    // A rank that opens the old epoch after another has entered the new one is correctly rejected.
    ++opened;
    await([&] { return opened == 3; });
    if (rank == 2) return world->kill(2);
    EXPECT_THAT(text_of([&] { old.all_reduce(view_of(data), ReduceOp::kSum); }), HasSubstr("rank 2 is gone"));
    const auto open = [&](std::uint32_t epoch) {
      return world->open(rank, GroupSpec{.ranks = survivors, .name = "replicas", .epoch = epoch});
    };
    const auto fresh = open(1);
    data.assign(data.size(), 1);
    fresh->all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_EQ(data.back(), 2);
    EXPECT_THAT(text_of([&] { open(0); }),
                HasSubstr("'replicas' of epoch 0 is refused, rank 0 is in epoch 1"));
    fresh->barrier();
  });
  EXPECT_EQ(errors, none(3));
}

TEST(ProcessGone, BuffersAreFreeAfterAFailedWait) {
  // A sanitizer would detect a part that still uses freed memory.
  for (int repetition = 0; repetition < 12; ++repetition) {
    const auto world = make_process_world(3);
    world->run([&](int rank, Communicator& communicator) {
      auto data = std::make_unique<std::vector<double>>(400000, 1.0);
      const Request request = communicator.start_all_reduce(view_of(*data), ReduceOp::kSum);
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * repetition));
        repetition % 2 == 0 ? communicator.cancel("stop") : world->kill(2);
      }
      static_cast<void>(text_of([&] { communicator.wait(request); }));
      data.reset();
    });
  }
}

TEST(ProcessEpochs, AMessageOfAnOldOneIsRefused) {
  const auto world = make_process_world(3, 20);
  const int newer[] = {1, 2}, older[] = {0, 1};
  std::atomic<int> met{0};
  std::atomic<bool> moved_on{false};
  const auto errors = world->run([&](int rank, Communicator& all) {
    all.barrier();
    ++met;
    // The first rank to leave a barrier must not end it for others with a new epoch.
    await([&] { return met == 3; });
    std::vector<float> data(4);
    if (rank == 0) {
      await([&] { return moved_on.load(); });
      const auto stale = world->open(rank, GroupSpec{.ranks = older, .name = "pair", .epoch = 0});
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_THAT(text_of([&] { stale->all_reduce(view_of(data), ReduceOp::kSum); }),
                  HasSubstr("'pair' belongs to epoch 0, but rank 1 is in epoch 1"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
      return;
    }
    const auto fresh = world->open(rank, GroupSpec{.ranks = newer, .name = "pair", .epoch = 1});
    fresh->barrier();
    EXPECT_THAT(text_of([&] { all.barrier(); }),
                AllOf(HasSubstr("'replicas' belongs to epoch 0, but rank "), HasSubstr("is in epoch 1")));
    moved_on = true;
    sleep_ms(100);
  });
  EXPECT_EQ(errors, none(3));
}

TEST(ProcessOpen, RefusesWhatCannotBeAGroup) {
  const auto world = make_process_world(2);
  const auto open = [&](int rank, std::vector<int> ranks) {
    return text_of([&] { world->open(rank, GroupSpec{.ranks = ranks, .name = "g"}); });
  };
  EXPECT_THAT(open(0, {1}), HasSubstr("rank 0 opens 'g' of ranks 1: it is not a member"));
  EXPECT_THAT(open(0, {0, 3}), HasSubstr("the world has ranks 0 ... 1"));
  EXPECT_THAT(open(0, {0, 1, 0}), HasSubstr("rank 0 is listed twice"));
  const auto kept = world->open(0);
  EXPECT_THAT(text_of([&] { world->open(0); }), HasSubstr("rank 0 has 'replicas' open already"));
}

TEST(ProcessOpen, ANameMayBeOpenedAgainOnceClosed) {
  const auto world = make_process_world(3);
  const auto errors = world->run([&](int rank, Communicator&) {
    for (int generation = 0; generation < 20; ++generation) {
      const auto again = world->open(rank, "again");
      std::vector<std::int32_t> value{rank + generation};
      again->all_reduce(view_of(value), ReduceOp::kSum);
      EXPECT_EQ(value[0], 3 + 3 * generation);
    }
  });
  EXPECT_EQ(errors, none(3));
}

TEST(ProcessOpen, DifferentPurposesAreNamed) {
  const auto world = make_process_world(2, 5);
  const auto errors = world->run([&](int rank, Communicator&) {
    const auto odd = world->open(
        rank,
        GroupSpec{.ranks = world->all(), .name = "x", .purpose = rank ? Purpose::kModel : Purpose::kState});
    odd->barrier();
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("'x' for"), HasSubstr("model"), HasSubstr("state")));
}

TEST(ProcessEnd, ACommunicatorOutlivesItsTransport) {
  const auto world = make_process_world(2);
  const auto kept = world->open(0);
  const auto other = world->open(1);
  world->end(1);
  EXPECT_THAT(text_of([&] { other->barrier(); }), HasSubstr("after its transport ended"));
  EXPECT_THAT(text_of([&] { kept->barrier(); }), HasSubstr("rank 1 is gone: it has ended"));
}

}  // namespace
}  // namespace tenon::testing
