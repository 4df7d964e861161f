// Tensors on a device whose bytes mean nothing to the host, through rings of processes: the sums, copies and
// messages are those of host tensors, they leave at the start and arrive with the wait.
#include "comm/staged_communicator.hpp"

#include "base/testing/allocation_count.hpp"
#include "fake_port.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/ring/transport.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

namespace tenon::comm {
namespace {

/// Memory in which every byte is changed, so that code that takes it for the host's reads nonsense.
class ChangedDevice final : public Device {
 public:
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t bytes) override { return std::calloc(1, bytes); }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy(TensorView from, TensorView to) override {
    ++copies;
    bytes += from.bytes();
    EXPECT_EQ(from.bytes(), to.bytes());
    const auto change = from.space == to.space ? std::byte{0} : std::byte{0x5a};
    for (std::int64_t i = 0; i < from.bytes(); ++i) to.as<std::byte>()[i] = from.as<std::byte>()[i] ^ change;
  }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return ""; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view) override { return nullptr; }

  int copies = 0;
  std::int64_t bytes = 0;
};

/// A tensor on the device with its values for the host.
class Values {
 public:
  Values(Device& device, std::vector<float> values, int rows = 0)
      : device_(device), host_(std::move(values)) {
    const auto count = static_cast<std::int64_t>(host_.size());
    shape_ = rows == 0 ? Shape{count} : Shape{rows, count / rows};
    memory_ = device_.allocate(4 * host_.size() + 1);
    device_.copy(on_host(), view());
  }
  ~Values() { device_.release(memory_, 4 * host_.size() + 1); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  TensorView view() const { return {memory_, shape_, DType::kF32, MemorySpace::kCuda}; }
  void fill(float value) {
    host_.assign(host_.size(), value);
    device_.copy(on_host(), view());
  }
  const std::vector<float>& read() {
    device_.copy(view(), on_host());
    return host_;
  }

 private:
  TensorView on_host() { return {host_.data(), shape_, DType::kF32}; }
  Device& device_;
  std::vector<float> host_;
  Shape shape_;
  void* memory_ = nullptr;
};

/// A body per rank, each with a device and a communicator of its own; returns what they threw.
std::vector<std::string> run(int ranks, const std::function<void(int, ChangedDevice&, Communicator&)>& body) {
  testing::FakeNetwork network(ranks, 7);
  const auto clock = make_wall_clock();
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::string> errors(all.size());
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<RingTransport>> transports;
  for (const int rank : all) {
    WorldSpec spec;
    spec.ranks = ranks;
    spec.deadline_s = 20;
    spec.clock = clock.get();
    transports.push_back(std::make_unique<RingTransport>(network.port(rank), spec, "transport.fake"));
  }
  for (const int rank : all) {
    threads.emplace_back([&, rank] {
      try {
        ChangedDevice device;
        const auto group =
            staged(transports[rank]->open(rank, GroupSpec{.ranks = all, .name = "all"}), device);
        body(rank, device, *group);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

const std::vector<std::string> kNoErrors(3);

TEST(Staged, CollectivesGiveWhatHostTensorsGive) {
  const auto errors = run(3, [](int rank, ChangedDevice& device, Communicator& group) {
    const auto r = static_cast<float>(rank);
    Values sum(device, {r, 1, 2 * r}), rows(device, {r, r + 1, r + 2}, 3);
    group.all_reduce(sum.view(), ReduceOp::kSum);
    EXPECT_EQ(sum.read(), (std::vector<float>{3, 3, 6}));
    group.wait(group.start_reduce_scatter(rows.view(), ReduceOp::kMax));
    EXPECT_EQ(rows.read()[rank], 2 + r);
    EXPECT_EQ(rows.read()[(rank + 1) % 3], r + static_cast<float>((rank + 1) % 3))
        << "only the own row is written";

    std::vector<float> mine(6, -1);
    mine[2 * rank] = mine[2 * rank + 1] = r;
    Values gathered(device, mine, 3);
    group.all_gather(gathered.view());
    EXPECT_EQ(gathered.read(), (std::vector<float>{0, 0, 1, 1, 2, 2}));
    Values one(device, {r, r});
    group.broadcast(one.view(), 2);
    EXPECT_EQ(one.read(), (std::vector<float>{2, 2}));
    Values reduced(device, {r, 1});
    group.wait(group.start_reduce(reduced.view(), 1, ReduceOp::kSum));
    EXPECT_EQ(reduced.read(), rank == 1 ? (std::vector<float>{3, 3}) : (std::vector<float>{r, 1}));
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(Staged, MessagesAndPartsForEachMemberArrive) {
  const auto errors = run(3, [](int rank, ChangedDevice& device, Communicator& group) {
    const auto r = static_cast<float>(rank);
    Values send(device, {10 * r, 10 * r + 1, 10 * r + 2}), receive(device, {-1, -1, -1});
    const std::int64_t counts[] = {1, 1, 1};
    group.wait(group.start_all_to_all(send.view(), counts, receive.view(), counts));
    EXPECT_EQ(receive.read(), (std::vector<float>{r, 10 + r, 20 + r}));
    // One side on the host, as where only one end has a device.
    std::vector<float> host(3, -1);
    const Request arriving = group.start_receive({host.data(), Shape{3}, DType::kF32}, (rank + 2) % 3, 4);
    group.send(send.view(), (rank + 1) % 3, 4);
    group.wait(arriving);
    EXPECT_EQ(host[1], static_cast<float>(10 * ((rank + 2) % 3) + 1));
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(Staged, ReadsLeaveAtTheStartAndResultsArriveWithTheWait) {
  const auto errors = run(3, [](int, ChangedDevice& device, Communicator& group) {
    Values sum(device, std::vector<float>(500, 1));
    const Request request = group.start_all_reduce(sum.view(), ReduceOp::kSum);
    group.barrier();
    while (!group.done(request)) std::this_thread::yield();
    EXPECT_EQ(sum.read()[0], 1) << "the result came before the wait";
    sum.fill(100);
    group.wait(request);
    EXPECT_EQ(sum.read(), std::vector<float>(500, 3));
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(Staged, MovesNoMoreThanAnOperationNeeds) {
  const auto errors = run(3, [](int rank, ChangedDevice& device, Communicator& group) {
    Values rows(device, std::vector<float>(30, 1), 3);
    const auto moved = [&](const std::function<void()>& operation) {
      const std::int64_t before = device.bytes;
      operation();
      return device.bytes - before;
    };
    EXPECT_EQ(moved([&] { group.all_gather(rows.view()); }), 40 + 120);
    EXPECT_EQ(moved([&] { group.wait(group.start_reduce_scatter(rows.view(), ReduceOp::kSum)); }), 120 + 40);
    EXPECT_EQ(moved([&] { group.broadcast(rows.view(), 0); }), 120);
    EXPECT_EQ(moved([&] { group.wait(group.start_reduce(rows.view(), 0, ReduceOp::kSum)); }),
              rank == 0 ? 240 : 120);
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(Staged, WrongArgumentsAreRefusedByTheTransportAndItsFailuresPass) {
  const auto errors = run(3, [](int rank, ChangedDevice& device, Communicator& group) {
    Values two(device, {1, 2}, 2);
    try {
      group.all_gather(two.view());
      ADD_FAILURE() << "two rows for three members";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("expected one row for each of the 3 members"));
    }
    if (rank == 2) group.cancel("rank 2: disk full");
    EXPECT_THROW(group.all_reduce(two.view(), ReduceOp::kSum), CancelledError);
    EXPECT_EQ(two.read(), (std::vector<float>{1, 2})) << "a failed operation left something on the device";
  });
  EXPECT_EQ(errors, kNoErrors);
}

/// Alone in its group; every operation is over when it starts.
class Alone final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Request start_send(TensorView, int, int) override { return next(); }
  Request start_receive(TensorView, int, int) override { return next(); }
  Request start_all_reduce(TensorView, ReduceOp) override { return next(); }
  Request start_reduce_scatter(TensorView, ReduceOp) override { return next(); }
  Request start_all_gather(TensorView) override { return next(); }
  Request start_broadcast(TensorView, int) override { return next(); }
  Request start_reduce(TensorView, int, ReduceOp) override { return next(); }
  Request start_all_to_all(TensorView, std::span<const std::int64_t>, TensorView,
                           std::span<const std::int64_t>) override {
    return next();
  }
  bool done(Request) override { return true; }
  void wait(Request) override {}
  void barrier() override {}
  LinkCounts counts() const override { return {}; }
  void cancel(std::string_view) override {}

 private:
  Request next() { return {++last_}; }
  std::uint64_t last_ = 0;
};

TEST(Staged, ASteadyStepAllocatesNothing) {
  ChangedDevice device;
  const auto group = staged(std::make_unique<Alone>(), device);
  Values small(device, std::vector<float>(10)), large(device, std::vector<float>(5000)),
      other(device, std::vector<float>(700));
  const auto step = [&] {
    const Request a = group->start_all_reduce(small.view(), ReduceOp::kSum);
    const Request b = group->start_all_reduce(large.view(), ReduceOp::kSum);
    const Request c = group->start_broadcast(other.view(), 0);
    group->wait(b);
    group->all_reduce(other.view(), ReduceOp::kMax);
    group->wait(a);
    group->wait(c);
  };
  step();
  step();
  const std::int64_t before = tenon::testing::allocation_count();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(tenon::testing::allocation_count() - before, 0);
}

}  // namespace
}  // namespace tenon::comm
