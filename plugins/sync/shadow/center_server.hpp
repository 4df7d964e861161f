// The centre on server ranks: every server holds its shard of each arena, with one centre for each part of
// the mesh. A separate actor serves each trainer, so no actor waits for messages from an arbitrary
// sender; a lock per centre makes each request atomic.
#pragma once

#include <tenon/sync_extra.hpp>
#include <tenon/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

namespace tenon::sync_shadow {

// Messages between trainers and servers of `shadow_easgd`. They use three communicators of two members each,
// so that the data of exchanges are counted separately from data that the formulas leave out: requests
// (control), weights (parameter), and transfers of whole central copies (state). A request announces the
// messages on the others.

inline constexpr int kTrainer = 0, kServer = 1;  ///< members
inline constexpr int kTag = 0;

enum class Ask : std::int64_t {
  kRoom,        ///< no data: the most bytes that a later request will move; answered
  kSet,         ///< state: trainer -> server; answered
  kGet,         ///< state: server -> trainer
  kSymmetric,   ///< weights: w up, a (w - c) down, which is added to c
  kSequential,  ///< weights: w up, then the updated centre down
  kFetch,       ///< weights: c down
  kAdd,         ///< weights: e up, which is added to c; answered
  kBye,         ///< the last request
};

/// One message on the communicator for requests; answers have the same form.
struct Header {
  Ask request = Ask::kBye;
  std::int64_t arena = 0;
  std::int64_t elements = 0;  ///< number that follows
  std::int64_t begin = 0;     ///< offset of the first of them in the server's shard
  std::int64_t whole = 0;     ///< elements of that shard
  std::int64_t dtype = 0;
  double elastic = 0;
};
static_assert(std::is_trivially_copyable_v<Header>);

inline TensorView view_of(Header& header) {
  TensorView view;
  view.data = &header;
  view.dtype = DType::kU8;
  view.shape = Shape{static_cast<std::int64_t>(sizeof(Header))};
  return view;
}

/// Both ends of a pair.
struct Pair {
  std::unique_ptr<Communicator> requests, weights, state;

  /// open(name, purpose) returns one end of a communicator.
  template <typename Open>
  explicit Pair(Open&& open)
      : requests(open("shadow.requests", Purpose::kControl)),
        weights(open("shadow.weights", Purpose::kParameter)),
        state(open("shadow.center", Purpose::kState)) {}
};

class CenterServer final : public SyncServer {
 public:
  std::string_view declines() const override { return ""; }
  void serve(ServerNode& node) override;

 private:
  struct Arena {
    DType dtype = DType::kF32;
    std::vector<std::byte> shard;
  };
  struct Center {
    std::mutex mutex;
    std::vector<Arena> arenas;  ///< by number; unset ones are empty
  };

  /// Answers the requests of one trainer until kBye.
  void serve_one(Pair& pair, Center& center);
  void answer(Pair& pair, Center& center, const Header& header, std::vector<std::byte>& memory);
};

}  // namespace tenon::sync_shadow
