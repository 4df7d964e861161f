// Whether a run would have the same bits again: what its parts say of themselves, and what one slot shows
// that is computed twice.
#pragma once

#include "train/parts.hpp"
#include "train/progress.hpp"
#include "train/rank_host.hpp"
#include "train/row_exchange.hpp"
#include "train/service.hpp"
#include "train/worker.hpp"
#include "train/world.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::train {

class Repetition final : public Service {
 public:
  struct Sources {
    int rank = 0;
    RankHost* host = nullptr;
    Parts* parts = nullptr;
    const RowExchange* rows = nullptr;
    Worker* worker = nullptr;  ///< the first
    std::size_t workers = 1;
    bool on_request = false;  ///< rows of tables travel as they are asked for
    bool meshed = false;      ///< the model grid has several ranks
    const Progress* progress = nullptr;
  };
  Repetition(World& world, const Sources& sources) : world_(world), from_(sources) {}

  /// Why the run may have other bits by its very kind; "" if it may not.
  std::string nondeterminism() const;
  void start() override;
  /// Warns where the slot had other bits the second time.
  void after_slot(std::int64_t slot, const SlotResult& result) override;
  /// Collective: what was found, for the record of the run.
  void record() const;

 private:
  /// Why no slot is computed twice; "" where one is.
  std::string why_not() const;

  World& world_;
  Sources from_;
};

}  // namespace tenon::train
