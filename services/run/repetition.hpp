// Finds out whether a run would have the same bits again, from what its parts declare and from one slot that
// is computed twice.
#pragma once

#include "loop/service.hpp"
#include "loop/slot_queue.hpp"
#include "loop/worker.hpp"
#include "run/rank_context.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::train {

class Repetition final : public Service {
 public:
  /// Properties of the rank on which it depends.
  struct Shape {
    bool on_request = false;  ///< rows of tables travel as they are asked for
    bool exchanges = false;   ///< replicas exchange rows in every slot
    bool meshed = false;      ///< the mesh has several ranks
    std::size_t workers = 1;
  };
  Repetition(const RankContext& rank, const Shape& shape, Worker& first, const Progress& progress)
      : rank_(rank), shape_(shape), worker_(first), progress_(progress) {}

  /// Why the run may have other bits by its very kind; "" if it may not.
  std::string nondeterminism() const;
  void start() override;
  /// Warns where the slot had other bits the second time.
  void after_slot(std::int64_t slot, const SlotResult& result) override;
  /// Collective: what was found, for the record of the run.
  void record() const;

 private:
  /// Why no slot is computed twice; "" where one is.
  std::string unchecked_reason() const;

  RankContext rank_;
  Shape shape_;
  Worker& worker_;  ///< the first
  const Progress& progress_;
};

}  // namespace tenon::train
