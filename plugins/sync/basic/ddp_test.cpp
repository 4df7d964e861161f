// ddp against K replicas in one thread: the mean, the overlap, the order of waits, one replica, failures,
// allocation.
#include "ddp.hpp"

#include "base/testing/allocation_count.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tenon/host.hpp>
#include <tenon/tensor_values.hpp>

#include <string>

namespace tenon::sync_basic {
namespace {

using ::testing::ElementsAre;

[[noreturn]] void unexpected(const char* what) {
  throw std::logic_error(std::string("ddp must not call ") + what);
}

/// Returns the binary16 bits of a number that binary16 holds; infinity beyond its range.
std::uint16_t f16_of(double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  value = std::abs(value);
  if (value >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = std::max(std::ilogb(value), -14);
  return static_cast<std::uint16_t>(
      sign | (((exponent + 14) << 10) + static_cast<int>(std::nearbyint(std::ldexp(value, 10 - exponent)))));
}

/// All-reduces of K members in one thread: a sum happens at the first wait of any member.
struct Exchange {
  explicit Exchange(int members) : views(static_cast<std::size_t>(members)) {}
  std::vector<std::vector<TensorView>> views;  // [member][operation]
  std::size_t summed = 0;

  void complete(std::size_t until) {
    for (; summed < until; ++summed) {
      const std::int64_t count = views[0][summed].elements();
      for (std::int64_t i = 0; i < count; ++i) {
        if (views[0][summed].dtype == DType::kF16) {
          double half_sum = 0;
          for (auto& member : views) half_sum += real_of_f16(member.at(summed).as<std::uint16_t>()[i]);
          for (auto& member : views) member.at(summed).as<std::uint16_t>()[i] = f16_of(half_sum);
          continue;
        }
        float sum = 0;
        for (auto& member : views) sum += member.at(summed).as<float>()[i];
        for (auto& member : views) member.at(summed).as<float>()[i] = sum;
      }
    }
  }
};

class Member final : public Communicator {
 public:
  Member(Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {
    exchange_.views[index()].reserve(64);
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(exchange_.views.size()); }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    EXPECT_EQ(op, ReduceOp::kSum);
    exchange_.views[index()].push_back(data);
    return {exchange_.views[index()].size()};
  }
  void wait(Request request) override {
    if (fail) throw CancelledError("rank 3 failed");
    EXPECT_EQ(request.id, ++waited_) << "each request once, in order";
    exchange_.complete(request.id);
  }
  std::size_t started() const { return exchange_.views[rank_].size(); }

  Request start_send(TensorView, int, int) override { unexpected("start_send"); }
  Request start_receive(TensorView, int, int) override { unexpected("start_receive"); }
  Request start_reduce_scatter(TensorView, ReduceOp) override { unexpected("start_reduce_scatter"); }
  Request start_all_gather(TensorView) override { unexpected("start_all_gather"); }
  Request start_broadcast(TensorView, int) override { unexpected("start_broadcast"); }
  Request start_reduce(TensorView, int, ReduceOp) override { unexpected("start_reduce"); }
  Request start_all_to_all(TensorView, std::span<const std::int64_t>, TensorView,
                           std::span<const std::int64_t>) override {
    unexpected("start_all_to_all");
  }
  bool done(Request) override { unexpected("done"); }
  void barrier() override { unexpected("barrier"); }
  LinkCounts counts() const override { return {}; }
  void cancel(std::string_view) override {}

  bool fail = false;

 private:
  std::size_t index() const { return rank_; }
  Exchange& exchange_;
  int rank_;
  std::uint64_t waited_ = 0;
};

class HostElementwise final : public Elementwise {
 public:
  void scale(TensorView y, double factor) override {
    for (float& value : y.span<float>()) value = static_cast<float>(value * factor);
  }
  void fill(TensorView, double) override { unexpected("fill"); }
  void axpy(double, TensorView, TensorView) override { unexpected("axpy"); }
  void lerp(TensorView, TensorView, double) override { unexpected("lerp"); }
  void subtract(TensorView, TensorView, TensorView) override { unexpected("subtract"); }
  std::int64_t subtract_targets(TensorView, TensorView, TensorView) override {
    unexpected("subtract_targets");
  }
  void add(TensorView, TensorView, TensorView) override { unexpected("add"); }
  void convert(TensorView x, TensorView y) override {
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      if (y.dtype == DType::kF16)
        y.as<std::uint16_t>()[i] = f16_of(x.as<float>()[i]);
      else
        y.as<float>()[i] = real_of_f16(x.as<std::uint16_t>()[i]);
    }
  }
  void add_bias(TensorView, TensorView, TensorView) override { unexpected("add_bias"); }
};

class HostDevice final : public Device {
 public:
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(std::size_t bytes) override { return std::calloc(1, bytes); }
  void release(void* memory, std::size_t) noexcept override { std::free(memory); }
  void copy(TensorView, TensorView) override { unexpected("copy"); }
  void synchronize() override {}
  std::string_view kernel_choice() const override { return "test"; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override { return id == Elementwise::kId ? &elementwise_ : nullptr; }

 private:
  HostElementwise elementwise_;
};

/// A replica with one arena of gradients, divided into buckets that arrive from the last to the first
/// element.
class FakeReplica final : public Replica {
 public:
  FakeReplica(Communicator* group, int replica, int replicas, std::vector<std::int64_t> bucket_sizes)
      : group_(group), replica_(replica), replicas_(replicas) {
    std::int64_t total = 0;
    for (const std::int64_t size : bucket_sizes) total += size;
    values.resize(total);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < bucket_sizes.size(); ++i) {
      buckets_.push_back({.index = static_cast<int>(i),
                          .arena = 0,
                          .begin = begin,
                          .gradients = {.data = values.data() + begin, .shape = Shape{bucket_sizes[i]}}});
      begin += bucket_sizes[i];
    }
  }
  int replica() const override { return replica_; }
  int replicas() const override { return replicas_; }
  std::uint64_t seed() const override { return 1; }
  Device& device() override { return device_; }
  Host& host() override { unexpected("host"); }
  Communicator* group(Purpose purpose) override {
    EXPECT_EQ(purpose, Purpose::kGradient);
    return group_;
  }
  std::unique_ptr<Communicator> open(std::string_view, Purpose purpose) override {
    EXPECT_EQ(purpose, Purpose::kGradient);
    return std::make_unique<Member>(*static_cast<Member*>(group_));
  }
  int servers() const override { return 0; }
  std::unique_ptr<Communicator> open_to_server(int, std::string_view, Purpose) override {
    unexpected("open_to_server");
  }
  ParameterSet& live() override { unexpected("live"); }
  ParameterSet& gradients() override { unexpected("gradients"); }
  double gradient_scale() const override { unexpected("gradient_scale"); }
  double gradient_count() const override { unexpected("gradient_count"); }
  double peak_rate() const override { unexpected("peak_rate"); }
  std::span<ParameterSet* const> optimizer_state() override { unexpected("optimizer_state"); }
  ParameterSet& create_set(std::string_view) override { unexpected("create_set"); }
  void copy(const ParameterSet&, ParameterSet&) override { unexpected("copy"); }
  void sync_buffers() override { unexpected("sync_buffers"); }
  std::span<const Bucket> buckets() const override { return buckets_; }
  void pause() override {}
  void resume() override {}
  std::int64_t slot() const override { return 0; }
  std::vector<float> values;  // of all buckets

 private:
  Communicator* group_;
  int replica_, replicas_;
  std::vector<Bucket> buckets_;
  HostDevice device_;
};

struct DefaultOptions : Options {
  bool has(std::string_view) const override { return false; }
  bool boolean(std::string_view) const override { unexpected("options"); }
  std::int64_t integer(std::string_view) const override { unexpected("options"); }
  double real(std::string_view name) const override {
    EXPECT_EQ(name, "bucket_mb");
    return 25;
  }
  std::string_view text(std::string_view name) const override {
    return name == "communication" ? wire : "replica";
  }
  std::string_view wire = "gradient";
  std::span<const std::int64_t> integers(std::string_view) const override { unexpected("options"); }
  std::span<const double> reals(std::string_view) const override { unexpected("options"); }
  std::span<const std::string_view> texts(std::string_view) const override { unexpected("options"); }
  void* component_pointer(std::string_view, std::string_view) const override { unexpected("options"); }
  std::span<const std::string_view> section_names(std::string_view) const override { unexpected("options"); }
  const Options& section(std::string_view, std::string_view) const override { unexpected("options"); }
};
const struct PlainOptions final : DefaultOptions {
} default_options;

/// K replicas with K strategies, driven in lockstep; the loop drives each separately.
struct World {
  World(int replicas, std::vector<std::int64_t> bucket_sizes, const Options& options = default_options)
      : exchange(replicas) {
    for (int r = 0; r < replicas; ++r) {
      members.push_back(std::make_unique<Member>(exchange, r));
      parts.push_back(std::make_unique<FakeReplica>(members.back().get(), r, replicas, bucket_sizes));
      strategies.push_back(std::make_unique<Ddp>(options));
      strategies.back()->start(*parts.back());
    }
  }
  void backward(int r) {
    for (const Bucket& bucket : parts[r]->buckets()) {
      strategies[r]->on_gradients_ready(bucket);
    }
  }
  void step() {
    for (int r = 0; r < exchange_size(); ++r) backward(r);
    for (auto& strategy : strategies) strategy->finish_gradients();
  }
  int exchange_size() const { return static_cast<int>(members.size()); }

  Exchange exchange;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<std::unique_ptr<FakeReplica>> parts;
  std::vector<std::unique_ptr<Ddp>> strategies;
};

TEST(Ddp, EveryReplicaGetsTheMean) {
  for (const int replicas : {2, 3, 4, 7}) {
    World world(replicas, {3, 1, 4});
    for (int r = 0; r < replicas; ++r) {
      for (int i = 0; i < 8; ++i) world.parts[r]->values[i] = static_cast<float>((r + 1) * (i - 3));
    }
    world.step();
    for (int r = 0; r < replicas; ++r) {
      for (int i = 0; i < 8; ++i) {
        const double mean = (replicas + 1) / 2.0 * (i - 3);
        // The sums are whole numbers and exact; only 1/K and the product are rounded.
        EXPECT_NEAR(world.parts[r]->values[i], mean, std::abs(mean) * 1.2e-7);
      }
      EXPECT_EQ(world.parts[r]->values, world.parts[0]->values) << "bit for bit";
    }
  }
}

// 4 x 60000 exceeds the largest binary16, 65504; the mean does not.
TEST(Ddp, HalfGradientsOverflowOnlyWhereTheMeanDoes) {
  DefaultOptions options;
  options.wire = "f16";
  World world(4, {3, 1}, options);
  for (auto& part : world.parts) part->values = {60000, -60000, 0x1p-10F, 3};
  world.parts[3]->values[3] = 1e9F;
  world.step();
  for (auto& part : world.parts) {
    EXPECT_THAT(part->values, ElementsAre(60000, -60000, 0x1p-10F, HUGE_VALF)) << "what overflows is seen";
  }
  World steady(2, {8, 8}, options);
  steady.step();
  const std::int64_t before = testing::allocation_count();
  steady.step();
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST(Ddp, ABucketLeavesAsSoonAsItIsReady) {
  World world(2, {2, 2, 2});
  const std::span<const Bucket> buckets = world.parts[0]->buckets();
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    world.strategies[0]->on_gradients_ready(buckets[i]);
    EXPECT_EQ(world.members[0]->started(), i + 1);
    EXPECT_EQ(world.exchange.views[0].back().data, buckets[i].gradients.data);
  }
}

TEST(Ddp, OneReplicaIsLeftAlone) {
  FakeReplica alone(nullptr, 0, 1, {4});
  alone.values = {1, 2, 3, 4};
  Ddp ddp(default_options);
  ddp.start(alone);
  ddp.on_gradients_ready(alone.buckets()[0]);
  ddp.finish_gradients();
  EXPECT_THAT(alone.values, ElementsAre(1, 2, 3, 4));

  World world(1, {4});  // a group of one instead of none
  world.parts[0]->values = {1, 2, 3, 4};
  world.step();
  EXPECT_THAT(world.parts[0]->values, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(world.members[0]->started(), 0u);
}

TEST(Ddp, ReplicasAgreeOnAnUpdate) {
  Ddp ddp(default_options);
  EXPECT_EQ(ddp.gradient_group(), GradientGroup::kAllReplicas);
  EXPECT_EQ(None(default_options).gradient_group(), GradientGroup::kReplica);
  EXPECT_EQ(ddp.plan({.t = 5}).kind, SlotKind::kGrad);
  EXPECT_EQ(ddp.plan({.t = 5}).lr_scale, 1.0);
}

TEST(Ddp, AFailedWaitLeavesNoRequestBehind) {
  World world(2, {2, 2});
  world.backward(0);
  world.members[0]->fail = true;
  EXPECT_THROW(world.strategies[0]->finish_gradients(), CancelledError);
  world.members[0]->fail = false;
  world.strategies[0]->finish_gradients();  // nothing to wait for
}

TEST(Ddp, ASteadyStepAllocatesNothing) {
  World world(2, std::vector<std::int64_t>(20, 8));
  world.step();
  const std::int64_t before = testing::allocation_count();
  world.step();
  world.step();
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::sync_basic
