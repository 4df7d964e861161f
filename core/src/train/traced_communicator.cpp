// Operations in flight are few, so a flat list finds them; it keeps its memory.
#include "train/traced_communicator.hpp"

#include <algorithm>
#include <array>

namespace tenon::train {
namespace {

constexpr std::string_view kCommunication = "communication", kOverlap = "overlap";
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

class TracedCommunicator final : public Communicator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, SpanRecorder& recorder, std::string_view name)
      : inner_(std::move(inner)), recorder_(recorder) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      names_[i] = recorder.keep(std::string(kOperationNames[i]) + " " + std::string(name));
    open_.reserve(64);
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
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
    if (found == open_.end()) return inner_->wait(request);
    end_overlap(found);
    const Operation operation = found->operation;
    open_.erase(found);
    const SpanScope scope(&recorder_, kCommunication, name(operation));
    inner_->wait(request);
  }
  void barrier() override {
    const SpanScope scope(&recorder_, kCommunication, name(kBarrier));
    inner_->barrier();
  }
  LinkCounts counts() const override { return inner_->counts(); }
  void cancel(std::string_view reason) override { inner_->cancel(reason); }

 private:
  struct Open {
    std::uint64_t id;
    Operation operation;
    double started_s;
    bool overlapping;
  };

  template <typename Start>
  Request start(Operation operation, Start&& begin) {
    if (!recorder_.wanted()) return begin();
    const double from = recorder_.now();
    const Request request = begin();
    const double until = recorder_.now();
    recorder_.add({kCommunication, name(operation), from, until});
    open_.push_back({request.id, operation, until, true});
    return request;
  }
  std::vector<Open>::iterator find(Request request) {
    return std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.id == request.id; });
  }
  void end_overlap(std::vector<Open>::iterator open) {
    if (open == open_.end() || !open->overlapping) return;
    open->overlapping = false;
    const double now = recorder_.now();
    if (now - open->started_s >= kLeastOverlapSeconds)
      recorder_.add({kOverlap, name(open->operation), open->started_s, now});
  }
  std::string_view name(Operation operation) const { return names_[static_cast<std::size_t>(operation)]; }

  std::unique_ptr<Communicator> inner_;
  SpanRecorder& recorder_;
  std::array<std::string_view, kOperationNames.size()> names_;
  std::vector<Open> open_;
};

}  // namespace

std::unique_ptr<Communicator> traced(std::unique_ptr<Communicator> inner, SpanRecorder* recorder,
                                     std::string_view name) {
  if (recorder == nullptr || !recorder->wanted()) return inner;
  return std::make_unique<TracedCommunicator>(std::move(inner), *recorder, name);
}

}  // namespace tenon::train
