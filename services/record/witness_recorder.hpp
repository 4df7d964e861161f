// Writes down the digests of the slots that [run] witness_every names: a file per rank beside the logs
// (witness/witness_file.hpp). Lines beyond the slot that a run goes on from are dropped, as those of metrics
// are.
#pragma once

#include "loop/service.hpp"
#include "loop/slot_queue.hpp"
#include "loop/witness.hpp"
#include "run/rank_context.hpp"
#include "witness/witness_file.hpp"

#include <tenon/files.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tenon::train {

class WitnessRecorder final : public Service, private WitnessSink {
 public:
  /// Only for runs of one worker. All outlive this.
  WitnessRecorder(const RankContext& rank, Worker& worker, const Progress& progress);

  void start() override;
  void after_slot(std::int64_t slot, const SlotResult& result) override;

 private:
  bool wants(std::int64_t slot) override;
  bool wants_outputs_of(std::string_view node) override;
  void add(const WitnessTensor& tensor, const std::string& digest) override;
  /// Drops what the file of a rank has from the first slot on; returns the names that it still has.
  std::vector<WitnessName> trim(int rank);
  /// An earlier segment may have had more ranks.
  void trim_others();
  std::string path_of(int rank) const;

  RankContext rank_;
  const Progress& progress_;
  std::unique_ptr<WritableFile> file_;
  WitnessText text_;
};

}  // namespace tenon::train
