// Bytes between ranks. A transport plugin makes communicators; strategies and layers use them; the core opens
// and closes them. All reductions follow one fixed order (a ring, chunk c summed from rank c + 1 upwards, see
// docs/reductions.md), so every transport gives the same bits.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

class Clock;
class Device;

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

/// Why bytes travel; counted apart.
enum class Purpose : std::uint8_t {
  kGradient,
  kParameter,
  kModel,
  kState,
  kStatistics,
  kActor,
  kRecovery,
  kControl
};
inline constexpr int kPurposes = 8;
std::string_view purpose_name(Purpose purpose) noexcept;
/// "rank 2" or "ranks 1, 3", for messages.
std::string ranks_text(const std::vector<int>& ranks);

/// Traffic that left this rank. Counted where it leaves; must equal the closed forms of the papers.
struct LinkCounts {
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t operations = 0;
  double blocked_seconds = 0;  ///< on the run's clock, spent waiting
  /// Part of blocked_seconds that waited for the last member to join (a straggler, a barrier); the rest
  /// waited for bytes.
  double late_seconds = 0;
  /// Duration of transfers, from the last join on, whether or not a thread waited meanwhile: at least
  /// blocked_seconds - late_seconds of one thread. The excess was hidden by other work.
  double transfer_seconds = 0;
};

/// A started operation. Plain handle of the communicator that returned it; wait for it exactly once.
struct Request {
  std::uint64_t id = 0;
};

/// Members of a communicator, in group order. A message of an old epoch is refused.
struct GroupSpec {
  std::span<const int> ranks;  ///< world ranks
  std::string_view
      name;  ///< unique among open communicators of these ranks, e.g. "replicas", "axis0", "sync.averager"
  Purpose purpose = Purpose::kParameter;
  std::uint32_t epoch = 0;
  /// Longest wait of this end for a message, in seconds; 0 = the world's deadline. For an end whose peer may
  /// rightly be silent for long (a server's): failures and cancellation end its wait as any other.
  double deadline_s = 0;
};

/// Operations must be started in the same order by all members of one communicator. Buffers belong to the
/// caller and stay untouched until wait() returns. One thread at a time per communicator. Every wait ends:
/// with success, with DeadlineError that names the late ranks, or with CancelledError when another rank
/// failed.
class Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;  ///< within the group
  virtual int size() const = 0;
  virtual Request start_send(TensorView data, int to, int tag) = 0;
  virtual Request start_receive(TensorView data, int from, int tag) = 0;
  /// In place; all members pass the same shape and dtype (a mismatch is an error on every member).
  virtual Request start_all_reduce(TensorView data, ReduceOp op) = 0;
  /// data: [size, n]; on return row rank() holds the reduction of that row, the others are unspecified.
  virtual Request start_reduce_scatter(TensorView data, ReduceOp op) = 0;
  /// data: [size, n]; the caller filled row rank(), on return all rows are filled.
  virtual Request start_all_gather(TensorView data) = 0;
  virtual Request start_broadcast(TensorView data, int root) = 0;
  /// Sum-reduce onto root in fixed order; the adjoint of broadcast.
  virtual Request start_reduce(TensorView data, int root, ReduceOp op) = 0;
  /// send and receive: counts[i] elements to and from member i, packed in member order.
  virtual Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts,
                                   TensorView receive, std::span<const std::int64_t> receive_counts) = 0;
  virtual bool done(Request request) = 0;
  virtual void wait(Request request) = 0;
  virtual void barrier() = 0;
  virtual LinkCounts counts() const = 0;
  /// Ends every present and future operation of all members with CancelledError(reason).
  virtual void cancel(std::string_view reason) = 0;

  void all_reduce(TensorView data, ReduceOp op) { wait(start_all_reduce(data, op)); }
  void all_gather(TensorView data) { wait(start_all_gather(data)); }
  void broadcast(TensorView data, int root) { wait(start_broadcast(data, root)); }
  void send(TensorView data, int to, int tag) { wait(start_send(data, to, tag)); }
  void receive(TensorView data, int from, int tag) { wait(start_receive(data, from, tag)); }
};

/// Link model of [transport.link]; zero bandwidth = as fast as memory. Every member of a group has such a
/// link, and a collective runs at the pace of the slowest (WorldSpec::link_speed).
struct LinkSpec {
  double bandwidth_bits_per_s = 0;
  double latency_s = 0;
  double jitter_s = 0;
};

/// Text exchange of the processes of one run before any communicator exists. The core passes one to a
/// transport whose ranks are processes; a transport with a launcher of its own (MPI) offers one instead, by
/// query(kId), before connect.
class Rendezvous {
 public:
  static constexpr const char* kId = "tenon.transport.rendezvous/1";
  virtual ~Rendezvous();
  virtual int rank() const = 0;  ///< the one world rank of this process
  virtual int ranks() const = 0;
  /// The texts of all ranks, in rank order. Collective; throws DeadlineError that names the late ranks.
  virtual std::vector<std::string> exchange(const std::string& text) = 0;
};

/// Offered through query(kId) by a transport whose sums may differ from run to run; the run then says so.
class NotRepeatable {
 public:
  static constexpr const char* kId = "tenon.transport.not_repeatable/1";
  virtual ~NotRepeatable();
  virtual std::string reason() const = 0;  ///< "sums follow the order of ..."
};

/// The world as a transport sees it.
struct WorldSpec {
  int ranks = 1;
  double deadline_s = 60;
  LinkSpec link;
  std::vector<double> link_speed = {};  ///< by world rank, factors of the link's bandwidth; empty: all 1
  std::uint64_t seed = 0;               ///< of jitter
  Clock* clock = nullptr;               ///< the run's clock; outlives the transport
  Rendezvous* rendezvous = nullptr;     ///< null: all ranks are threads of this process
};

class Transport {
 public:
  using Interface = Transport;
  static constexpr const char* kKind = "transport/1";
  virtual ~Transport();
  /// Called once per process, before any communicator.
  virtual void connect(const WorldSpec& world) = 0;
  /// World ranks that live in this process (thread transport: all of them).
  virtual std::span<const int> local_ranks() const = 0;
  /// Opens `world_rank`'s end. Every member must open; the first operation waits for all, up to the deadline.
  virtual std::unique_ptr<Communicator> open(int world_rank, const GroupSpec& group) = 0;
  /// Ends every present and future operation of this process's communicators with CancelledError(reason): a
  /// rank of the run has failed. From any thread.
  virtual void cancel(std::string_view reason) = 0;
  /// Totals of one rank over all its communicators, closed ones included.
  virtual LinkCounts counts(int world_rank, Purpose purpose) const = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Base of a communicator around another one: all calls go to the inner one.
class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  ~CommunicatorDecorator() override;
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Request start_send(TensorView data, int to, int tag) override { return inner_->start_send(data, to, tag); }
  Request start_receive(TensorView data, int from, int tag) override {
    return inner_->start_receive(data, from, tag);
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    return inner_->start_all_reduce(data, op);
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return inner_->start_reduce_scatter(data, op);
  }
  Request start_all_gather(TensorView data) override { return inner_->start_all_gather(data); }
  Request start_broadcast(TensorView data, int root) override { return inner_->start_broadcast(data, root); }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return inner_->start_reduce(data, root, op);
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return inner_->start_all_to_all(send, send_counts, receive, receive_counts);
  }
  bool done(Request request) override { return inner_->done(request); }
  void wait(Request request) override { inner_->wait(request); }
  void barrier() override { inner_->barrier(); }
  LinkCounts counts() const override { return inner_->counts(); }
  void cancel(std::string_view reason) override { inner_->cancel(reason); }

 protected:
  std::unique_ptr<Communicator> inner_;
};

/// One rank's view of the mesh of its replica: its place and the ranks that it can reach. Layers get it
/// from InferContext::mesh(); exchanges between layouts are planned on it (sdk/block_exchange.hpp,
/// sdk/linear_map.hpp). Communicators belong to the caller and outlive the mesh. One thread at a time.
class Mesh {
 public:
  /// One rank alone.
  Mesh() = default;
  /// `index`: of this rank, row-major in `extents`. `all`: every rank of the mesh in that order, null for
  /// one. `axes`: per axis the ranks along it, null where it has one.
  Mesh(std::vector<int> extents, int index, Communicator* all, std::vector<Communicator*> axes,
       int replica = 0);

  int size() const noexcept { return size_; }
  int index() const noexcept { return index_; }
  int axes() const noexcept { return static_cast<int>(extents_.size()); }
  int extent(int axis) const { return extents_.at(axis); }
  int coordinate(int axis) const { return coordinates_.at(axis); }
  std::span<const int> extents() const noexcept { return extents_; }
  MeshPlace place() const noexcept { return {extents_, coordinates_, replica_}; }

  Communicator* all() const noexcept { return all_; }
  Communicator* axis(int axis) const { return axis_.at(axis); }

  /// A number for the messages of one plan. All ranks make their plans in the same order, so it is the same
  /// on all.
  int next_tag() noexcept { return next_tag_++; }

  /// Collective. `problem`: why this rank cannot go on, or empty. If a rank has one, or if `text` differs,
  /// throws the same Error(kConfig) on all, which begins with `what` and names the first such rank.
  void agree(const std::string& what, const std::string& text, const std::string& problem = "");

 private:
  std::vector<int> extents_, coordinates_;
  int size_ = 1, index_ = 0, replica_ = 0, next_tag_ = 0;
  Communicator* all_ = nullptr;
  std::vector<Communicator*> axis_;
};

/// Offered through query(kId) by a transport whose communicators take views in a device's memory; it gets
/// each rank's device. With any other transport the core moves such tensors through host memory.
class DeviceTransport {
 public:
  static constexpr const char* kId = "tenon.transport.device/1";
  virtual ~DeviceTransport();
  /// Returns what this machine lacks for it, as the text of an error; "" = nothing. May be called before
  /// connect.
  virtual std::string missing() = 0;
  /// Called by the thread of `world_rank`, once its device is open and before it opens a communicator; again
  /// when the rank is built again, after its communicators are closed. Collective over all ranks of the run.
  /// The device outlives the rank's communicators and may be gone afterwards; the rendezvous of connect is
  /// still there. Throws Error(kConfig) for a device that the transport cannot serve.
  virtual void attach(int world_rank, Device& device) = 0;
};

TENON_ABI_END
