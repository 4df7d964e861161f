// Copies the parts of a tensor that an operation reads and writes (staged_communicator.hpp). Wrong arguments
// are passed on as they are: the inner communicator refuses them in its own words.
#include "comm/staged_communicator.hpp"

#include <tenon/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace tenon::comm {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

class StagedCommunicator final : public CommunicatorDecorator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device)
      : CommunicatorDecorator(std::move(inner)), device_(device) {
    open_.reserve(64);
    buffers_.reserve(64);
  }
  // Operations without a wait may still use the buffers.
  ~StagedCommunicator() override { inner_.reset(); }

  Request start_send(TensorView data, int to, int tag) override {
    return start(data, Reads::kAll, Writes::kNothing,
                 [&](const TensorView& host) { return inner_->start_send(host, to, tag); });
  }
  Request start_receive(TensorView data, int from, int tag) override {
    return start(data, Reads::kNothing, Writes::kAll,
                 [&](const TensorView& host) { return inner_->start_receive(host, from, tag); });
  }
  Request start_all_reduce(TensorView data, ReduceOp op) override {
    return start(data, Reads::kAll, Writes::kAll,
                 [&](const TensorView& host) { return inner_->start_all_reduce(host, op); });
  }
  Request start_reduce_scatter(TensorView data, ReduceOp op) override {
    return start(data, Reads::kAll, Writes::kRow,
                 [&](const TensorView& host) { return inner_->start_reduce_scatter(host, op); });
  }
  Request start_all_gather(TensorView data) override {
    return start(data, Reads::kRow, Writes::kAll,
                 [&](const TensorView& host) { return inner_->start_all_gather(host); });
  }
  Request start_broadcast(TensorView data, int root) override {
    const bool mine = root == rank();
    return start(data, mine ? Reads::kAll : Reads::kNothing, mine ? Writes::kNothing : Writes::kAll,
                 [&](const TensorView& host) { return inner_->start_broadcast(host, root); });
  }
  Request start_reduce(TensorView data, int root, ReduceOp op) override {
    return start(data, Reads::kAll, root == rank() ? Writes::kAll : Writes::kNothing,
                 [&](const TensorView& host) { return inner_->start_reduce(host, root, op); });
  }
  Request start_all_to_all(TensorView send, std::span<const std::int64_t> send_counts, TensorView receive,
                           std::span<const std::int64_t> receive_counts) override {
    return start(send, Reads::kAll, Writes::kNothing, [&](const TensorView& from) {
      return start(receive, Reads::kNothing, Writes::kAll, [&](const TensorView& to) {
        return inner_->start_all_to_all(from, send_counts, to, receive_counts);
      });
    });
  }
  void wait(Request request) override {
    try {
      CommunicatorDecorator::wait(request);
    } catch (...) {
      end(request, false);
      throw;
    }
    end(request, true);
  }

 private:
  enum class Reads { kNothing, kRow, kAll };
  enum class Writes { kNothing, kRow, kAll };
  struct Buffer {
    std::vector<std::byte> memory;
    bool taken = false;
  };
  struct Open {
    std::uint64_t id = 0;
    TensorView on_device, on_host;
    Writes writes = Writes::kNothing;
    std::size_t buffer = kNone;
  };

  template <typename Start>
  Request start(const TensorView& data, Reads reads, Writes writes, Start&& begin) {
    if (data.space == MemorySpace::kHost || data.empty()) {
      TensorView host = data;
      host.space = MemorySpace::kHost;
      return begin(host);
    }
    Open open{.on_device = data, .on_host = data, .writes = writes, .buffer = take(data.bytes())};
    open.on_host.data = buffers_[open.buffer].memory.data();
    open.on_host.space = MemorySpace::kHost;
    try {
      if (reads == Reads::kAll) device_.copy(open.on_device, open.on_host);
      if (reads == Reads::kRow && has_rows(data))
        device_.copy(data.rows(rank(), rank() + 1), open.on_host.rows(rank(), rank() + 1));
      open.id = begin(open.on_host).id;
    } catch (...) {
      buffers_[open.buffer].taken = false;
      throw;
    }
    open_.push_back(open);
    return {open.id};
  }

  bool has_rows(const TensorView& data) const {
    return data.shape.rank() >= 1 && data.shape[0] == size() &&
           data.elements() / size() * dtype_bits(data.dtype) % 8 == 0;
  }

  /// The smallest free buffer that is large enough, else the largest one, made larger.
  std::size_t take(std::int64_t bytes) {
    const std::size_t wanted = bytes;
    std::size_t best = kNone;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].taken) continue;
      const std::size_t size = buffers_[i].memory.size(),
                        found = best == kNone ? 0 : buffers_[best].memory.size();
      const bool fits = size >= wanted, better = found >= wanted ? fits && size < found : size > found;
      if (best == kNone || better) best = i;
    }
    if (best == kNone) {
      best = buffers_.size();
      buffers_.emplace_back();
    }
    if (buffers_[best].memory.size() < wanted) {
      buffers_[best].memory = {};  // before the larger one: what is in it is of no use
      buffers_[best].memory.resize(wanted);
    }
    buffers_[best].taken = true;
    return best;
  }

  /// An all_to_all has two open entries.
  void end(Request request, bool well) {
    for (std::size_t i = 0; i < open_.size();) {
      if (open_[i].id != request.id) {
        ++i;
        continue;
      }
      const Open open = open_[i];
      open_[i] = open_.back();
      open_.pop_back();
      buffers_[open.buffer].taken = false;
      if (!well || open.writes == Writes::kNothing) continue;
      const bool row = open.writes == Writes::kRow;
      device_.copy(row ? open.on_host.rows(rank(), rank() + 1) : open.on_host,
                   row ? open.on_device.rows(rank(), rank() + 1) : open.on_device);
    }
  }

  Device& device_;
  std::vector<Open> open_;
  std::vector<Buffer> buffers_;
};

}  // namespace

std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, Device& device) {
  return std::make_unique<StagedCommunicator>(std::move(inner), device);
}

}  // namespace tenon::comm
