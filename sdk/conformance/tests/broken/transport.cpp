// Transports around a correct one (option inner) that break one promise each.
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tenon;

constexpr OptionSpec kInner[] = {
    option::component("inner", "transport/1").mandatory().doc_text("a good one")};

class Around : public Transport {
 public:
  explicit Around(const Options& options) : inner_(options.component<Transport>("inner")) {}
  void connect(const WorldSpec& world) override { inner_->connect(world); }
  std::span<const int> local_ranks() const override { return inner_->local_ranks(); }
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& group) override {
    return inner_->open(rank, group);
  }
  void cancel(std::string_view reason) override { inner_->cancel(reason); }
  LinkCounts counts(int rank, Purpose purpose) const override { return inner_->counts(rank, purpose); }
  void* query(std::string_view) override { return nullptr; }

 protected:
  Transport* inner_;
};

/// A transport whose ends are of class `Flawed`.
template <typename Flawed>
class With : public Around {
 public:
  using Around::Around;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& group) override {
    return std::make_unique<Flawed>(inner_->open(rank, group));
  }
};

struct WorldRank : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  int rank() const override { return size() == 2 ? 1 - inner_->rank() : inner_->rank(); }
};
class NumbersByWorld final : public With<WorldRank> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "numbers_by_world", .summary = "ranks of the world in a group", .options = kInner};
  using With::With;
};

struct NoTags : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_send(TensorView data, int to, int) override { return inner_->start_send(data, to, 0); }
  Request start_receive(TensorView data, int from, int) override {
    return inner_->start_receive(data, from, 0);
  }
};
class IgnoresTags final : public With<NoTags> {
 public:
  static constexpr ComponentInfo kInfo{.id = "ignores_tags", .summary = "first come", .options = kInner};
  using With::With;
};

/// Gathers, then adds from rank 0 upwards on all ranks.
struct FromZero : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    if (data.dtype != DType::kF32 || op != ReduceOp::kSum) return inner_->start_all_reduce(data, op);
    const auto n = static_cast<std::size_t>(data.elements()), k = static_cast<std::size_t>(size());
    std::vector<float> all(n * k);
    std::copy_n(data.as<float>(), n,
                all.begin() + static_cast<std::ptrdiff_t>(n * static_cast<std::size_t>(rank())));
    TensorView view{all.data(), Shape{size(), data.elements()}, DType::kF32, MemorySpace::kHost};
    inner_->all_gather(view);
    for (std::size_t i = 0; i < n; ++i) {
      float sum = all[i];
      for (std::size_t r = 1; r < k; ++r) sum += all[r * n + i];
      data.as<float>()[i] = sum;
    }
    return inner_->start_broadcast(TensorView{nullptr, Shape{0}, DType::kF32, MemorySpace::kHost}, 0);
  }
};
class AddsFromZero final : public With<FromZero> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "adds_from_zero", .summary = "another order of summation", .options = kInner};
  using With::With;
};

struct SumsOnly : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_all_reduce(TensorView data, ReduceOp) override {
    return inner_->start_all_reduce(data, ReduceOp::kSum);
  }
};
class KnowsSumsOnly final : public With<SumsOnly> {
 public:
  static constexpr ComponentInfo kInfo{.id = "knows_sums_only", .summary = "max is a sum", .options = kInner};
  using With::With;
};

struct RootZero : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_broadcast(TensorView data, int) override { return inner_->start_broadcast(data, 0); }
};
class BroadcastsFromZero final : public With<RootZero> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "broadcasts_from_zero", .summary = "root is ignored", .options = kInner};
  using With::With;
};

/// Places parts in the order in which a ring delivers them.
struct RingOrder : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    const Request request = inner_->start_all_to_all(send, send_counts, receive, receive_counts);
    inner_->wait(request);
    std::rotate(receive.as<float>(), receive.as<float>() + receive_counts[0],
                receive.as<float>() + receive.elements());
    return inner_->start_broadcast(TensorView{nullptr, Shape{0}, DType::kF32, MemorySpace::kHost}, 0);
  }
};
class PacksAsTheyCome final : public With<RingOrder> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "packs_as_they_come", .summary = "parts in another order", .options = kInner};
  using With::With;
};

/// wait(request) waits for the oldest one.
struct Oldest : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    started_.push_back(inner_->start_all_reduce(data, op));
    return {started_.size()};
  }
  bool done(Request) override { return true; }
  void wait(Request request) override {
    if (request.id == 0 || request.id > started_.size()) return inner_->wait(request);
    if (next_ < started_.size()) inner_->wait(started_[next_++]);
  }
  std::vector<Request> started_;
  std::size_t next_ = 0;
};
class WaitsForTheOldest final : public With<Oldest> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "waits_for_the_oldest", .summary = "requests are one queue", .options = kInner};
  using With::With;
};

struct Optimist : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  LinkCounts counts() const override {
    LinkCounts counts = inner_->counts();
    counts.bytes_sent -= counts.bytes_sent / 8;
    return counts;
  }
};
class CountsTooLittle final : public With<Optimist> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "counts_too_little", .summary = "headers are not counted", .options = kInner};
  using With::With;
};

struct Patient : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  void wait(Request request) override {
    for (int i = 0; i < 400 && !inner_->done(request); ++i)  // would be for ever
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    inner_->wait(request);
  }
};
class WaitsForLong final : public With<Patient> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "waits_for_long", .summary = "a deadline of its own", .options = kInner};
  using With::With;
};

struct Vague : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  void wait(Request request) override {
    try {
      inner_->wait(request);
    } catch (const DeadlineError&) {
      throw DeadlineError("timeout");
    }
  }
};
class TellsNobody final : public With<Vague> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "tells_nobody", .summary = "a timeout without a name", .options = kInner};
  using With::With;
};

struct Blunt : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  void cancel(std::string_view) override { inner_->cancel("cancelled"); }
};
class ForgetsTheReason final : public With<Blunt> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "forgets_the_reason", .summary = "cancelled, but why", .options = kInner};
  using With::With;
};

/// Leaves waiting ranks to their deadlines.
class EndsNothing final : public Around {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "ends_nothing", .summary = "cancel does nothing", .options = kInner};
  using Around::Around;
  void cancel(std::string_view) override {}
};

class HasOneDeadline final : public Around {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "has_one_deadline", .summary = "groups cannot wait longer", .options = kInner};
  using Around::Around;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& group) override {
    GroupSpec same = group;
    same.deadline_s = 0;
    return inner_->open(rank, same);
  }
};

/// Reduces one f32, whatever the shapes are.
struct Trusting : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  Request start_all_reduce(TensorView data, ReduceOp) override {
    float word = 0;
    return inner_->start_all_reduce(
        TensorView{data.elements() > 0 ? data.data : &word, Shape{1}, DType::kF32, MemorySpace::kHost},
        ReduceOp::kSum);
  }
};
class TrustsItsCallers final : public With<Trusting> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "trusts_its_callers", .summary = "compares no shapes", .options = kInner};
  using With::With;
};

class KnowsNoEpochs final : public Around {
 public:
  static constexpr ComponentInfo kInfo{.id = "knows_no_epochs", .summary = "all are one", .options = kInner};
  using Around::Around;
  std::unique_ptr<Communicator> open(int rank, const GroupSpec& group) override {
    GroupSpec same = group;
    same.epoch = 0;
    return inner_->open(rank, same);
  }
};

struct Copies : CommunicatorDecorator {
  using CommunicatorDecorator::CommunicatorDecorator;
  void barrier() override {
    const std::vector<std::string> note(4, std::string(64, 'b'));
    inner_->barrier();
  }
};
class WritesNotes final : public With<Copies> {
 public:
  static constexpr ComponentInfo kInfo{.id = "writes_notes", .summary = "takes memory", .options = kInner};
  using With::With;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.transport", .version = "1.0.0", .summary = "wrong transports"},
             NumbersByWorld, IgnoresTags, AddsFromZero, KnowsSumsOnly, BroadcastsFromZero, PacksAsTheyCome,
             WaitsForTheOldest, CountsTooLittle, WaitsForLong, TellsNobody, ForgetsTheReason, EndsNothing,
             HasOneDeadline, TrustsItsCallers, KnowsNoEpochs, WritesNotes)
