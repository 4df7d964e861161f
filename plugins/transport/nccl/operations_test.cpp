// Operations on device tensors: the calls that NCCL receives, their order, groups and streams, and no device
// allocation in a steady step.
#include "test_world.hpp"

namespace tenon::nccl_transport {
namespace {

using testing::text_of;

class NcclOperations : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    fake_nccl_reset();
    fake_nccl_streams(GetParam() ? 1 : 0);
  }
};
INSTANTIATE_TEST_SUITE_P(InStream, NcclOperations, ::testing::Bool());

template <typename T>
TensorView on_device(std::vector<T>& values, int rows = 0) {
  TensorView view = rows == 0 ? testing::view_of(values) : testing::rows_of(values, rows);
  view.space = MemorySpace::kCuda;
  return view;
}

TEST_P(NcclOperations, OfDeviceTensorsNeedNoBuffers) {
  NcclWorld world(3);
  const auto errors = world.run([&](int rank, Communicator& group) {
    const auto r = static_cast<float>(rank);
    std::vector<float> sum = {r, 1}, rows = {r, r + 1, r + 2}, gathered(3, -1), one = {r};
    group.all_reduce(on_device(sum), ReduceOp::kSum);
    EXPECT_EQ(sum, (std::vector<float>{3, 3}));
    group.wait(group.start_reduce_scatter(on_device(rows, 3), ReduceOp::kMax));
    EXPECT_EQ(rows[rank], 2 + r);
    gathered[rank] = r;
    group.all_gather(on_device(gathered, 3));
    EXPECT_EQ(gathered, (std::vector<float>{0, 1, 2}));
    group.broadcast(on_device(one), 2);
    EXPECT_EQ(one[0], 2);
    std::vector<float> reduced = {r};
    group.wait(group.start_reduce(on_device(reduced), 0, ReduceOp::kSum));
    EXPECT_EQ(reduced[0], rank == 0 ? 3 : r);
    std::vector<float> send = {r, 10 + r, 20 + r}, receive(3);
    const std::int64_t counts[] = {1, 1, 1};
    group.wait(group.start_all_to_all(on_device(send), counts, on_device(receive), counts));
    EXPECT_EQ(receive, (std::vector<float>{10 * r, 10 * r + 1, 10 * r + 2}));
    EXPECT_EQ(world.device(rank).allocations, 0);
    EXPECT_EQ(world.device(rank).waited_for_compute, 6) << "each waits for what computes its tensor";
    group.barrier();
    EXPECT_EQ(world.device(rank).allocations, 1);
  });
  EXPECT_EQ(errors, testing::none(3));
  EXPECT_GT(world.device(0).made_current, 0);
}

TEST_P(NcclOperations, ReachNcclInTheOrderOfTheirStarts) {
  NcclWorld world(1);
  const auto errors = world.run([&](int, Communicator& group) {
    std::vector<float> a(5), b(6), c(7);
    const Request first = group.start_all_reduce(on_device(a), ReduceOp::kSum);
    const Request second = group.start_broadcast(on_device(b), 0);
    const Request third = group.start_all_reduce(on_device(c), ReduceOp::kMax);
    group.wait(third);
    group.wait(second);
    group.wait(first);
  });
  EXPECT_EQ(errors, testing::none(1));
  world.kill(0);
  EXPECT_STREQ(fake_nccl_record(),
               "GetUniqueId\n0/1 CommInitRankConfig\n0/1 AllReduce 5\n0/1 Broadcast 24\n0/1 AllReduce 7\n"
               "0/1 CommFinalize\n0/1 CommDestroy\n");
}

TEST_P(NcclOperations, MessagesThatAreStartedTogetherGoInOneGroupInTheOrderOfTheirTags) {
  NcclWorld world(2);
  std::vector<std::vector<std::int32_t>> arrived(2, std::vector<std::int32_t>(2));
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<std::int32_t> five = {50 + rank}, seven = {70 + rank};
    std::vector<std::int32_t> in5(1), in7(1);
    std::vector<Request> requests;
    const auto send = [&](int tag) {
      requests.push_back(group.start_send(on_device(tag == 5 ? five : seven), 1 - rank, tag));
    };
    const auto receive = [&](int tag) {
      requests.push_back(group.start_receive(on_device(tag == 5 ? in5 : in7), 1 - rank, tag));
    };
    // Both send first, in opposite order at each end.
    send(rank == 0 ? 5 : 7);
    send(rank == 0 ? 7 : 5);
    receive(7);
    receive(5);
    EXPECT_EQ(world.counts(rank, Purpose::kGradient).bytes_sent, 8u);
    for (const Request request : requests) group.wait(request);
    arrived[rank] = {in5[0], in7[0]};
  });
  EXPECT_EQ(errors, testing::none(2));
  EXPECT_EQ(arrived, (std::vector<std::vector<std::int32_t>>{{51, 71}, {50, 70}}));
}

TEST_P(NcclOperations, MessagesLeaveBeforeACollectiveThatIsStartedBehindThem) {
  NcclWorld world(2);
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<float> value = {1}, sum = {1};
    const Request message =
        rank == 0 ? group.start_send(on_device(value), 1, 0) : group.start_receive(on_device(value), 0, 0);
    group.all_reduce(on_device(sum), ReduceOp::kSum);
    EXPECT_EQ(sum[0], 2);
    group.wait(message);
  });
  EXPECT_EQ(errors, testing::none(2));
}

TEST_P(NcclOperations, TypesThatNcclDoesNotReduceAreRefused) {
  NcclWorld world(1);
  const auto errors = world.run([&](int, Communicator& group) {
    std::vector<std::int16_t> data(2);
    EXPECT_THAT(text_of([&] {
                  group.all_reduce({data.data(), Shape{2}, DType::kI16}, ReduceOp::kSum);
                }),
                ::testing::HasSubstr("NCCL does not reduce i16"));
    EXPECT_THAT(text_of([&] { group.wait(Request{9}); }), ::testing::HasSubstr("waits twice"));
    EXPECT_THAT(text_of([&] {
                  group.broadcast({data.data(), Shape{2}, DType::kI16}, 1);
                }),
                ::testing::HasSubstr("member 1 does not exist"));
    group.barrier();
  });
  EXPECT_EQ(errors, testing::none(1));
}

TEST_P(NcclOperations, ASteadyStepAllocatesNothingOnTheDeviceAndBuffersAreKept) {
  NcclWorld world(2);
  const auto errors = world.run([&](int rank, Communicator& group) {
    std::vector<float> host(500), device(500);
    const auto step = [&] {
      const Request a = group.start_all_reduce(testing::view_of(host), ReduceOp::kSum);
      const Request b = group.start_all_reduce(on_device(device), ReduceOp::kSum);
      const Request c =
          rank == 0 ? group.start_send(on_device(device), 1, 0) : group.start_receive(on_device(host), 0, 0);
      group.wait(b);
      group.wait(a);
      group.wait(c);
      group.barrier();
    };
    for (int i = 0; i < 3; ++i) step();
    const int before = world.device(rank).allocations;
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(world.device(rank).allocations, before);
  });
  EXPECT_EQ(errors, testing::none(2));
}

}  // namespace
}  // namespace tenon::nccl_transport
