// Ends of operations when NCCL fails, hangs or is cancelled, when ranks are late, disagree, leave or die;
// communicators then end together.
#include "test_world.hpp"

namespace tenon::nccl_transport {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::text_of;
using testing::view_of;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

class NcclFailures : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    fake_nccl_reset();
    fake_nccl_streams(GetParam() ? 1 : 0);
  }
  void TearDown() override { EXPECT_EQ(fake_nccl_open(), 0) << "communicators of NCCL that nobody ended"; }
};
INSTANTIATE_TEST_SUITE_P(InStream, NcclFailures, ::testing::Bool());

TEST_P(NcclFailures, ALateRankIsNamedWithTheOperationThatItDidNotJoin) {
  NcclWorld world(3, 0.4);
  std::atomic<int> deadlines{0};
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<float> data(10);
    group.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 1) sleep_ms(900);
    try {
      group.all_reduce(view_of(data), ReduceOp::kSum);
    } catch (const DeadlineError&) {
      ++deadlines;
      throw;
    }
  });
  // A rank that learns of the deadline from another one is cancelled.
  EXPECT_GE(deadlines, 1);
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                HasSubstr("rank 1 did not join all_reduce(sum, f32 [10]) #1 of 'replicas' within 0.4 s"));
}

TEST_P(NcclFailures, NcclThatHangsEndsAtTheDeadlineAndSaysThatAllWereThere) {
  fake_nccl_script("hang AllReduce 1 1");
  NcclWorld world(2, 0.4);
  const auto errors = world.run([&](int, Communicator& group) {
    std::vector<float> data(10);
    group.all_reduce(view_of(data), ReduceOp::kSum);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("#0 of 'replicas' did not end within 0.4 s, though all ranks joined it"));
}

TEST_P(NcclFailures, AnErrorOfNcclKeepsItsWordsAndReachesTheOthers) {
  fake_nccl_script("fail AllReduce 0 2 2");
  NcclWorld world(2, 20);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = world.run([&](int, Communicator& group) {
    std::vector<float> data(10, 1);
    group.all_reduce(view_of(data), ReduceOp::kSum);
    group.all_reduce(view_of(data), ReduceOp::kSum);
  });
  const std::string what = "ncclAllReduce failed: unhandled system error (2): the fake's own words";
  EXPECT_THAT(errors[0], HasSubstr(what));
  EXPECT_THAT(errors[1], AnyOf(HasSubstr(what), HasSubstr("rank 0 is gone")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST_P(NcclFailures, AnErrorThatComesLaterIsSeenWhileWaiting) {
  NcclWorld world(2, 20);
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<float> data(10, 1);
    group.barrier();
    if (rank == 1) return sleep_ms(100);
    const Request request = group.start_all_reduce(view_of(data), ReduceOp::kSum);
    fake_nccl_script("async 0 6");
    group.wait(request);
  });
  EXPECT_THAT(errors[0], HasSubstr("failed: remote process exited or there was a network error (6)"));
}

TEST_P(NcclFailures, CancellingAbortsAllCommunicatorsInsideOneGroup) {
  NcclWorld world(2, 20);
  std::atomic<int> cancelled{0}, waiting{0};
  const auto begin = std::chrono::steady_clock::now();
  world.run([&](int rank, Communicator& first) {
    const auto second = world.open(rank, "second"), third = world.open(rank, "third");
    std::vector<float> a(10), b(10), c(10);
    second->barrier();
    third->barrier();
    first.barrier();
    if (rank == 0) {
      const Request one = first.start_all_reduce(view_of(a), ReduceOp::kSum);
      const Request two = second->start_all_reduce(view_of(b), ReduceOp::kSum);
      const Request three = third->start_receive(view_of(c), 1, 0);
      std::thread other([&] {
        sleep_ms(50);
        world.cancel(0, "rank 1: disk full");
      });
      for (const auto& [group, request] :
           {std::pair(&first, one), {second.get(), two}, {third.get(), three}}) {
        try {
          group->wait(request);
        } catch (const CancelledError& error) {
          EXPECT_STREQ(error.what(), "rank 1: disk full");
          ++cancelled;
        }
      }
      other.join();
      const auto later = world.open(0, "later");
      EXPECT_EQ(text_of([&] { later->barrier(); }), "rank 1: disk full");
    }
    ++waiting;
    testing::await([&] { return waiting == 2; });
  });
  EXPECT_EQ(cancelled, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  const std::string record = fake_nccl_record();
  EXPECT_THAT(record, HasSubstr("GroupStart\n0/2 CommAbort\n0/2 CommAbort\n0/2 CommAbort\nGroupEnd\n"));
}

TEST_P(NcclFailures, AMemberThatCancelsItsGroupReachesTheOthersOfThatGroupAlone) {
  NcclWorld world(2, 20);
  std::atomic<int> done{0};
  const auto errors = world.run([&](int rank, Communicator& group) {
    const auto other = world.open(rank, "other");
    std::vector<float> data(10, 1);
    other->barrier();
    if (rank == 1) group.cancel("rank 1: no more of this");
    EXPECT_EQ(text_of([&] { group.all_reduce(view_of(data), ReduceOp::kSum); }), "rank 1: no more of this");
    other->all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_EQ(data[0], 2);
    ++done;
    testing::await([&] { return done == 2; });
  });
  EXPECT_EQ(errors, testing::none(2));
}

TEST_P(NcclFailures, MembersThatDisagreeAreNamedWithWhatTheyStarted) {
  struct Case {
    std::function<Request(Communicator&, std::vector<float>&)> odd;
    const char* expected;
  };
  const Case cases[] = {
      {[](Communicator& c, auto& f) { return c.start_broadcast(view_of(f), 0); },
       "broadcast(f32 [12], root 0)"},
      {[](Communicator& c, auto& f) { return c.start_all_reduce(view_of(f).rows(0, 5), ReduceOp::kSum); },
       "all_reduce(sum, f32 [5])"}};
  for (const Case& c : cases) {
    // NCCL's behaviour here is undefined, so the fake hangs.
    fake_nccl_script("hang AllReduce 2 1");
    fake_nccl_script("hang Broadcast 2 1");
    NcclWorld world(3, 5);
    const auto errors = world.run([&](int rank, Communicator& group) {
      std::vector<float> data(12);
      group.wait(rank == 2 ? c.odd(group, data) : group.start_all_reduce(view_of(data), ReduceOp::kSum));
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr("operation #0 of 'replicas'"),
                               HasSubstr("started all_reduce(sum, f32 [12])"), HasSubstr(c.expected)));
    fake_nccl_reset();
    fake_nccl_streams(GetParam() ? 1 : 0);
  }
}

TEST_P(NcclFailures, AMemberThatClosesEarlyIsNamed) {
  NcclWorld world(2, 1);
  const auto errors = world.run([](int rank, Communicator& group) {
    std::vector<float> data(10);
    group.all_reduce(view_of(data), ReduceOp::kSum);
    if (rank == 0) group.barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 closed 'replicas' without joining barrier #1"));
  EXPECT_EQ(errors[1], "");
}

TEST_P(NcclFailures, AnExceptionInAMemberCancelsTheOthers) {
  NcclWorld world(2, 5);
  const auto errors = world.run([](int rank, Communicator& group) {
    std::vector<float> data(10);
    group.barrier();
    if (rank == 1) {
      group.start_all_reduce(view_of(data), ReduceOp::kSum);
      fail_run("loss is NaN");
    }
    EXPECT_THROW(group.wait(group.start_receive(view_of(data), 1, 0)), CancelledError);
  });
  EXPECT_EQ(errors[1], "loss is NaN");
  EXPECT_EQ(errors[0], "");
}

TEST_P(NcclFailures, ADeathIsAnErrorLongBeforeTheDeadlineThatNamesTheRank) {
  NcclWorld world(3, 30);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> through{0};
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<float> data(10);
    group.all_reduce(view_of(data), ReduceOp::kSum);
    ++through;
    testing::await([&] { return through == 3; });
    if (rank == 2) return world.kill(2);
    group.all_reduce(view_of(data), ReduceOp::kSum);
  });
  for (const std::size_t rank : {0U, 1U})
    EXPECT_THAT(errors[rank], HasSubstr("rank 2 is gone: nothing answers at its port"));
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("during all_reduce(sum, f32 [10]) #1 of 'replicas'"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_P(NcclFailures, ARankThatNeverOpensIsLate) {
  NcclWorld world(2, 0.4);
  const auto alone = world.open(0);
  EXPECT_THAT(text_of([&] { alone->barrier(); }),
              HasSubstr("rank 1 did not join barrier #0 of 'replicas' within 0.4 s"));
  const auto end = world.open(1, "other");
  EXPECT_THAT(text_of([&] { end->barrier(); }),
              AnyOf(HasSubstr("rank 0 did not join"), HasSubstr("rank 0 failed")));
}

TEST_P(NcclFailures, AGroupMayHaveALongerDeadlineOfItsOwn) {
  NcclWorld world(2, 0.3);
  const auto errors = world.run([&](int rank, Communicator&) {
    const auto patient = world.open(
        rank,
        GroupSpec{.ranks = world.all(), .name = "patient", .purpose = Purpose::kActor, .deadline_s = 20});
    std::vector<float> data(3, 1);
    if (rank == 1) sleep_ms(700);
    patient->all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_EQ(data[0], 2);
  });
  EXPECT_EQ(errors, testing::none(2));
}

}  // namespace
}  // namespace tenon::nccl_transport
