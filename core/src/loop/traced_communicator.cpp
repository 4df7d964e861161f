// Operations in flight are few, so a flat list finds them; it keeps its memory.
#include "loop/traced_communicator.hpp"

#include <tenon/transport.hpp>

#include <algorithm>
#include <array>

namespace tenon::train {
namespace {

constexpr std::string_view kCommunication = "communication", kOverlap = "overlap", kLate = "wait";
/// A shorter gap between start and wait is the call itself, not work beside the transfer.
constexpr double kLeastOverlapSeconds = 2e-6;

enum Operation {
  kSend,
  kReceive,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier
};
constexpr std::array<const char*, 9> kOperationNames = {"send",           "receive",    "all-reduce",
                                                        "reduce-scatter", "all-gather", "broadcast",
                                                        "reduce",         "all-to-all", "barrier"};

class TracedCommunicator final : public CommunicatorDecorator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, const CommunicatorWatch& watch,
                     std::span<const int> members, std::string_view name)
      : CommunicatorDecorator(std::move(inner)), watch_(watch), members_(members.begin(), members.end()) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      names_[i] = std::string(kOperationNames[i]) + " " + std::string(name);
    // Spans outlive a communicator that is closed before the end of its slot.
    for (std::size_t i = 0; spans() && i < names_.size(); ++i) span_names_[i] = watch.spans->keep(names_[i]);
    open_.reserve(64);
  }

  Request start_send(TensorView data, int to, int tag) override {
    return start(kSend, [&] { return inner_->start_send(data, to, tag); });
  }
  Request start_receive(TensorView data, int from, int tag) override {
    return start(kReceive, [&] { return inner_->start_receive(data, from, tag); });
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    return start(kAllReduce, [&] { return inner_->start_all_reduce(data, op); });
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return start(kReduceScatter, [&] { return inner_->start_reduce_scatter(data, op); });
  }
  Request start_all_gather(TensorView data) override {
    return start(kAllGather, [&] { return inner_->start_all_gather(data); });
  }
  Request start_broadcast(TensorView data, int root) override {
    return start(kBroadcast, [&] { return inner_->start_broadcast(data, root); });
  }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return start(kReduce, [&] { return inner_->start_reduce(data, root, op); });
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return start(kAllToAll,
                 [&] { return inner_->start_all_to_all(send, send_counts, receive, receive_counts); });
  }
  bool done(Request request) override {
    const bool done = inner_->done(request);
    if (done) end_overlap(find(request));
    return done;
  }
  void wait(Request request) override {
    const auto found = find(request);
    if (found == open_.end()) return watched(kSend, [&] { inner_->wait(request); });
    end_overlap(found);
    const Operation operation = found->operation;
    open_.erase(found);
    watched(operation, [&] { inner_->wait(request); });
  }
  void barrier() override {
    before(kBarrier);
    watched(kBarrier, [&] { inner_->barrier(); });
  }

 private:
  struct Open {
    std::uint64_t id;
    Operation operation;
    double started_s;
    bool overlapping;
  };

  bool spans() const { return watch_.spans != nullptr && watch_.spans->wanted(); }
  void before(Operation operation) {
    if (watch_.faults != nullptr) watch_.faults->before_operation(members_, names_[operation]);
  }

  template <typename Start>
  Request start(Operation operation, Start&& begin) {
    const graph::PassWait waits(watch_.passes);
    before(operation);
    if (!spans()) return begin();
    const double from = watch_.spans->now();
    const Request request = begin();
    const double until = watch_.spans->now();
    watch_.spans->add({kCommunication, name(operation), from, until});
    open_.push_back({request.id, operation, until, true});
    return request;
  }

  /// A call that may wait. The transport knows how much of that was for a late rank.
  template <typename Call>
  void watched(Operation operation, Call&& call) {
    const graph::PassWait waits(watch_.passes);
    const bool shown = spans();
    double late = 0, begin = 0;
    {
      const PhaseScope part(watch_.account, Phase::kCommunication);
      if (!part.counts() && !shown) return call();
      const double late_before = inner_->counts().late_seconds;
      if (shown) begin = watch_.spans->now();
      call();
      late = inner_->counts().late_seconds - late_before;
      if (part.counts()) watch_.account->was_late(late);
    }
    if (!shown) return;
    const double end = watch_.spans->now();
    const double here = std::min(end, begin + late);
    if (late > 0) watch_.spans->add({kLate, name(operation), begin, here});
    watch_.spans->add({kCommunication, name(operation), here, end});
  }
  std::vector<Open>::iterator find(Request request) {
    return std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.id == request.id; });
  }
  void end_overlap(std::vector<Open>::iterator open) {
    if (open == open_.end() || !open->overlapping) return;
    open->overlapping = false;
    const double now = watch_.spans->now();
    if (now - open->started_s >= kLeastOverlapSeconds)
      watch_.spans->add({kOverlap, name(open->operation), open->started_s, now});
  }
  std::string_view name(Operation operation) const { return span_names_[operation]; }

  const CommunicatorWatch watch_;
  const std::vector<int> members_;
  std::array<std::string, kOperationNames.size()> names_;
  std::array<std::string_view, kOperationNames.size()> span_names_;
  std::vector<Open> open_;
};

}  // namespace

std::unique_ptr<Communicator> traced(std::unique_ptr<Communicator> inner, const CommunicatorWatch& watch,
                                     std::span<const int> members, std::string_view name) {
  return std::make_unique<TracedCommunicator>(std::move(inner), watch, members, name);
}

}  // namespace tenon::train
