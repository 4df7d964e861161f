// Ends of operations after errors: lateness, cancellation, disagreement, members that are gone.
#include "test_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace tenon::thread_transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(Deadlines, NameTheLateRankAndTheOperation) {
  TestWorld world(3, false, 0.1);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 1) sleep_ms(400);
    EXPECT_THROW(communicator.all_reduce(view_of(data), ReduceOp::kSum), DeadlineError);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);  // fails after a lost member
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1 did not join all_reduce #1 of 'replicas' within 0.1 s"),
                             HasSubstr("rank 1 has started 1 operations")));
  }
}

TEST(Deadlines, NameAMissingSenderAndReceiver) {
  struct Case {
    bool send;
    const char* expected;
  };
  for (const Case& c :
       {Case{true, "rank 1 did not start the message of 'replicas' from rank 0 to rank 1 with tag 4"},
        Case{false, "rank 1 did not start the message of 'replicas' from rank 1 to rank 0 with tag 4"}}) {
    TestWorld world(2, false, 0.05);
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      std::vector<float> data(10);
      if (rank == 1) return sleep_ms(200);
      c.send ? communicator.send(view_of(data), 1, 4) : communicator.receive(view_of(data), 1, 4);
    });
    EXPECT_THAT(errors[0], HasSubstr(c.expected));
    EXPECT_EQ(errors[1], "");
  }
}

TEST(Deadlines, CountFromTheWaitNotFromTheStart) {
  TestWorld world(2, false, 0.3);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    if (rank == 1) sleep_ms(450);
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 0) sleep_ms(400);
    communicator.wait(request);
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Deadlines, AnEndMayWaitLongerForMessagesThanTheWorld) {
  TestWorld world(2, false, 0.1);
  const int members[] = {0, 1};
  const auto errors = world.run([&](int rank, Communicator&) {
    const GroupSpec spec{members, "patient", Purpose::kControl, 0, rank == 0 ? 20.0 : 0.0};
    const auto pair = world.transport().open(rank, spec);
    std::vector<float> data(10);
    if (rank == 1) sleep_ms(400);
    rank == 0 ? pair->receive(view_of(data), 1, 0) : pair->send(view_of(data), 0, 0);
    if (rank == 0) return sleep_ms(400);
    EXPECT_THROW(pair->receive(view_of(data), 0, 0), DeadlineError) << "the other end keeps the world's";
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Cancel, OfTheTransportEndsWhatIsOpenAndWhatIsOpenedLater) {
  TestWorld world(3);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    if (rank == 1) {
      sleep_ms(50);
      world.transport().cancel("rank 1: it ended");
    }
    if (rank == 0) {
      EXPECT_THROW(communicator.receive(view_of(data), 2, 8), CancelledError);
    }
    if (rank == 2) {
      EXPECT_THROW(communicator.send(view_of(data), 0, 7), CancelledError);
    }
    world.open(rank, "later")->all_reduce(view_of(data), ReduceOp::kSum);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank 1: it ended"));
}

TEST(Cancel, WakesEverybodyAtOnceWithTheReason) {
  TestWorld world(4);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> cancelled{0};
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    try {
      switch (rank) {
        case 0:
          communicator.all_reduce(view_of(data), ReduceOp::kSum);
          break;
        case 1:
          communicator.receive(view_of(data), 3, 0);
          break;
        case 2:
          communicator.send(view_of(data), 3, 1);
          break;
        default:
          sleep_ms(50);
          communicator.cancel("rank 3: disk full");
          communicator.barrier();
      }
    } catch (const CancelledError& error) {
      EXPECT_STREQ(error.what(), "rank 3: disk full");
      ++cancelled;
    }
  });
  EXPECT_EQ(errors, none(4));
  EXPECT_EQ(cancelled, 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // the deadline is 30 s
}

TEST(Cancel, EndsAWaitOnASlowLink) {
  TestWorld world(2, false, 30, {.bandwidth_bits_per_s = 0, .latency_s = 60, .jitter_s = 0});
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    if (rank == 1) {
      const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
      sleep_ms(50);
      communicator.cancel("enough");
      communicator.wait(request);
    } else {
      communicator.all_reduce(view_of(data), ReduceOp::kSum);
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"enough", "enough"}));
}

TEST(Disagreement, IsAnErrorOnEveryMemberNamingBoth) {
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
    TestWorld world(3);
    const auto errors = world.run([&](int rank, Communicator& communicator) {
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

TEST(Disagreement, OfOrderIsDetected) {
  TestWorld world(2);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> a(4), b(6);
    const Request first = communicator.start_all_reduce(rank == 0 ? view_of(a) : view_of(b), ReduceOp::kSum);
    const Request second = communicator.start_all_reduce(rank == 0 ? view_of(b) : view_of(a), ReduceOp::kSum);
    communicator.wait(first);
    communicator.wait(second);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("f32 [4]"), HasSubstr("f32 [6]")));
}

TEST(Disagreement, OfAllToAllCountsNamesThePair) {
  TestWorld world(2);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> send(4), receive(4);
    const std::int64_t send_counts[] = {1, 3};
    const std::int64_t receive_counts[2][2] = {{1, 3}, {2, 2}};
    communicator.wait(
        communicator.start_all_to_all(view_of(send), send_counts, view_of(receive), receive_counts[rank]));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 sends 3 elements to rank 1, which expects 2"));
  }
}

TEST(Arguments, AreRefusedBeforeAnybodyWaits) {
  TestWorld world(2);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> data(6);
    const std::int64_t counts[] = {3, 3}, short_counts[] = {3, 2}, negative[] = {-1, 7}, single[] = {6};
    TensorView device = view_of(data), nowhere = view_of(data);
    device.space = MemorySpace::kCuda;
    nowhere.data = nullptr;
    TensorView packed{data.data(), Shape{2, 3}, DType::kF4E2M1};
    struct Case {
      const char* expected;
      std::function<void()> call;
    };
    std::vector<float> other(6);
    const Case cases[] = {
        {"member 2 does not exist", [&] { communicator.send(view_of(data), 2, 0); }},
        {"member -1 does not exist", [&] { communicator.receive(view_of(data), -1, 0); }},
        {"member 9 does not exist", [&] { communicator.broadcast(view_of(data), 9); }},
        {"not in host memory", [&] { communicator.all_reduce(device, ReduceOp::kSum); }},
        {"no data for [6]", [&] { communicator.all_reduce(nowhere, ReduceOp::kSum); }},
        {"no reduction sum of f4_e2m1", [&] { communicator.all_reduce(packed, ReduceOp::kSum); }},
        {"expected one row for each of the 2 members", [&] { communicator.all_gather(view_of(data)); }},
        {"ends inside a byte", [&] { communicator.all_gather(packed); }},
        {"1 counts", [&] { communicator.start_all_to_all(view_of(data), single, view_of(other), counts); }},
        {"add up to 5",
         [&] { communicator.start_all_to_all(view_of(data), short_counts, view_of(other), counts); }},
        {"a count of -1",
         [&] { communicator.start_all_to_all(view_of(data), counts, view_of(other), negative); }},
        {"overlap", [&] { communicator.start_all_to_all(view_of(data), counts, view_of(data), counts); }},
        {"waits twice", [&] { communicator.wait(Request{77}); }},
        {"waits twice", [&] { communicator.wait(Request{0}); }},
    };
    for (const Case& c : cases) EXPECT_THAT(error_of(c.call), HasSubstr(c.expected));
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    communicator.wait(request);  // the group still works
    EXPECT_THAT(error_of([&] { communicator.wait(request); }), HasSubstr("waits twice"));
    communicator.barrier();
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Gone, AMemberThatReturnsEarlyIsNamed) {
  TestWorld world(3);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank != 2) communicator.barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 closed 'replicas' without joining barrier #1"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], "");
}

TEST(Gone, AnExceptionInAMemberCancelsTheOthers) {
  TestWorld world(2);
  std::atomic<bool> cancelled{false};
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10);
    if (rank == 1) {
      communicator.start_receive(view_of(data), 0, 0);
      fail_run("loss is NaN");
    }
    try {
      communicator.all_reduce(view_of(data), ReduceOp::kSum);
    } catch (const CancelledError&) {  // so that this one is not reported as the first failure
      cancelled = true;
    }
  });
  EXPECT_EQ(errors[1], "loss is NaN");
  EXPECT_TRUE(cancelled);
}

TEST(Gone, BuffersAreFreeAfterAFailedWait) {
  // A sanitizer would detect a unit that still uses freed memory.
  for (int repetition = 0; repetition < 20; ++repetition) {
    TestWorld world(3);
    world.run([&](int rank, Communicator& communicator) {
      auto data = std::make_unique<std::vector<double>>(400000, 1.0);
      const Request request = communicator.start_all_reduce(view_of(*data), ReduceOp::kSum);
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::microseconds(200 * repetition));
        communicator.cancel("stop");
      }
      static_cast<void>(error_of([&] { communicator.wait(request); }));
      data.reset();
    });
  }
}

}  // namespace
}  // namespace tenon::thread_transport
