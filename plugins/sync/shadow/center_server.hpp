// The centre on server ranks: every server holds its shard of each arena, one centre for each part of the
// model grid. Every trainer is served by an actor of its own, so nobody waits for a message of just anyone; a
// lock per centre makes each request one step.
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
    std::vector<Arena> arenas;  ///< by number; those not set are empty
  };

  /// Answers the requests of one trainer until it says goodbye.
  void serve_one(Pair& pair, Center& center);
  void answer(Pair& pair, Center& center, const Header& header, std::vector<std::byte>& memory);
};

}  // namespace tenon::sync_shadow
