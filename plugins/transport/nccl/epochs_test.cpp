// Groups that are opened again: after a close, in a new epoch after a death, connected anew or shrunk from
// the survivors' old communicator.
#include "test_world.hpp"

namespace tenon::nccl_transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::text_of;
using testing::view_of;

class NcclEpochs : public ::testing::Test {
 protected:
  void SetUp() override { fake_nccl_reset(); }
  void TearDown() override { EXPECT_EQ(fake_nccl_open(), 0) << "communicators of NCCL that nobody ended"; }
};

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

/// Ranks 0 and 1 see rank 2 die in a sum and continue in epoch 1, each with a vector of ones.
std::vector<std::string> survive(NcclWorld& world, bool close_first) {
  std::atomic<int> opened{0}, left{0};
  return world.run([&, close_first](int rank, Communicator& old) {
    std::vector<float> data(1000, 1);
    old.barrier();
    auto second = world.open(rank, "second");
    second->barrier();
    ++opened;
    testing::await([&] { return opened == 3; });
    if (rank == 2) return world.kill(2);
    EXPECT_THAT(text_of([&] { old.all_reduce(view_of(data), ReduceOp::kSum); }), HasSubstr("rank 2 is gone"));
    if (close_first) second.reset();
    const int survivors[] = {0, 1};
    ++left;
    testing::await([&] { return left == 2; });
    const auto fresh = world.open(rank, GroupSpec{.ranks = survivors, .name = "second", .epoch = 1});
    data.assign(data.size(), 1);
    fresh->all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_EQ(data.back(), 2);
    EXPECT_THAT(text_of([&] { world.open(rank, GroupSpec{.ranks = survivors, .name = "third"}); }),
                HasSubstr("'third' of epoch 0 is refused, rank " + std::to_string(rank) + " is in epoch 1"));
    fresh->barrier();
    EXPECT_NE(text_of([&] { old.barrier(); }), "");
  });
}

TEST_F(NcclEpochs, SurvivorsConnectAnewWhereTheyDoNotShrink) {
  NcclWorld world(3, 20);
  EXPECT_EQ(survive(world, false), testing::none(3));
  const std::string record = fake_nccl_record();
  EXPECT_EQ(count_of(record, "GetUniqueId"), 3);
  EXPECT_THAT(record, AllOf(HasSubstr("GroupStart\n0/3 CommAbort\n0/3 CommAbort\nGroupEnd"),
                            HasSubstr("0/2 CommInitRankConfig"), Not(HasSubstr("CommShrink"))));
}

TEST_F(NcclEpochs, SurvivorsShrinkWhatTheyHaveAndReleaseTheOldOneWithAbort) {
  for (const bool close_first : {false, true}) {
    fake_nccl_reset();
    NcclWorld world(3, 20, 7);
    EXPECT_EQ(survive(world, close_first), testing::none(3));
    const std::string record = fake_nccl_record();
    EXPECT_EQ(count_of(record, "GetUniqueId"), 2) << "only of the first epoch";
    for (const char* rank : {"0/3", "1/3"}) {
      const std::string r = rank;
      EXPECT_THAT(record, HasSubstr("GroupStart\n" + r + " CommRevoke\n" + r + " CommRevoke\nGroupEnd\n"))
          << record;
      const auto shrunk = record.find(r + " CommShrink 2 abort\n");
      ASSERT_NE(shrunk, std::string::npos) << record;
      EXPECT_NE(record.find(r + " CommAbort", shrunk), std::string::npos) << "the parent is left";
    }
    EXPECT_THAT(record, Not(HasSubstr("0/3 CommDestroy")));
  }
}

TEST_F(NcclEpochs, SurvivorsConnectAnewWhereOneOfThemHasNothingToShrink) {
  for (const int shrinking : {1, 2}) {
    fake_nccl_reset();
    NcclWorld world(3, 20, shrinking);
    EXPECT_EQ(survive(world, false), testing::none(3));
    const std::string record = fake_nccl_record();
    EXPECT_EQ(count_of(record, "CommShrink"), 0);
    EXPECT_EQ(count_of(record, "CommRevoke"), 2);
  }
}

TEST_F(NcclEpochs, ANameMayBeOpenedAgainOnceClosed) {
  NcclWorld world(3);
  const auto errors = world.run([&](int rank, Communicator&) {
    for (int generation = 0; generation < 10; ++generation) {
      const auto again = world.open(rank, "again");
      std::vector<std::int32_t> value{rank + generation};
      again->all_reduce(view_of(value), ReduceOp::kSum);
      EXPECT_EQ(value[0], 3 + 3 * generation);
    }
  });
  EXPECT_EQ(errors, testing::none(3));
}

TEST_F(NcclEpochs, RefuseWhatCannotBeAGroup) {
  NcclWorld world(2);
  const auto open = [&](int rank, std::vector<int> ranks) {
    return text_of([&] { world.open(rank, GroupSpec{.ranks = ranks, .name = "g"}); });
  };
  EXPECT_THAT(open(0, {1}), HasSubstr("rank 0 opens 'g' of rank 1: it is not a member"));
  EXPECT_THAT(open(0, {0, 3}), HasSubstr("the world has ranks 0 ... 1"));
  EXPECT_THAT(open(0, {0, 1, 0}), HasSubstr("rank 0 is listed twice"));
  const auto kept = world.open(0);
  EXPECT_THAT(text_of([&] { world.open(0); }), HasSubstr("rank 0 has 'replicas' open already"));
}

TEST_F(NcclEpochs, ACommunicatorOutlivesItsTransport) {
  NcclWorld world(2, 5);
  auto kept = world.open(0);
  auto other = world.open(1);
  world.end(1);
  EXPECT_THAT(text_of([&] { other->barrier(); }), HasSubstr("after its transport ended"));
  EXPECT_THAT(text_of([&] { kept->barrier(); }), HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace tenon::nccl_transport
