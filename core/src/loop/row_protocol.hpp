// Messages between clients and owners of rows (row_client.hpp, row_server.hpp). A pair is one worker of a
// replica and one other replica: two communicators of these two ranks, so that lookups and gradients are
// counted apart. A header on the first names what follows.
#pragma once

#include <tenon/tensor.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace tenon::train {

inline constexpr int kClient = 0, kOwner = 1;  ///< members of a pair
inline constexpr int kRowTag = 0;

enum class RowMessage : std::int32_t {
  kLookup,  ///< lookups: the request, then the answer comes back
  kUpdate,  ///< gradients: rows per table, ids, values, counts
  kFlush,   ///< comes back once everything before has been applied
  kBye,     ///< the last one
};

struct RowHeader {
  RowMessage message = RowMessage::kBye;
  std::int32_t node = 0;          ///< of a lookup
  std::int64_t bytes = 0;         ///< of what follows
  std::int64_t answer_bytes = 0;  ///< of what comes back
  /// UpdateContext of the client's slot, for an update.
  struct Update {
    double lr, gradient_scale;
    std::int64_t count;
  };
  /// Slot of the client and the position of its first sample, for a lookup: the owner can then foresee the
  /// client's next ones. In the room of an update's numbers, so that no message is longer for it.
  struct Place {
    std::int64_t slot, position;
  };
  union {
    Update update = {0, 1, 0};
    Place place;
  };
};
static_assert(std::is_trivially_copyable_v<RowHeader> && sizeof(RowHeader) == 48);

inline TensorView bytes_view(const void* data, std::size_t bytes) {
  TensorView view;
  view.data = const_cast<void*>(data);
  view.dtype = DType::kU8;
  view.shape = Shape{static_cast<std::int64_t>(bytes)};
  return view;
}
inline TensorView header_view(RowHeader& header) {
  return bytes_view(&header, sizeof header);
}

/// One end of a pair.
struct RowPair {
  std::unique_ptr<Communicator> lookups, gradients;
};

/// Names of its communicators, by world ranks.
inline std::string row_pair_name(const char* what, int client, int worker, int owner) {
  return fmt::format("rows.{}.{}.{}to{}", what, worker, client, owner);
}

}  // namespace tenon::train
