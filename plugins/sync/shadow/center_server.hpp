// The centre on server ranks: every server holds its shard of each arena, with one centre for each part of
// the model grid. A separate actor serves each trainer, so no actor waits for messages from an arbitrary
// sender; a lock per centre makes each request atomic.
#pragma once

#include "center_protocol.hpp"

#include <tenon/sync_extra.hpp>

#include <cstddef>
#include <mutex>
#include <vector>

namespace tenon::sync_shadow {

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
