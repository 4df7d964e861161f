// recovery.jsonl: what was saved, lost and restored, one JSON object per line, written by rank 0 as it
// happens. It is never truncated: a run that rolls back repeats its slots, and this file says so. With an
// emulated cluster each event carries its price in hours of the job; totals are sums of these, never
// formulas.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/recovery.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon {

/// Prices of an emulated cluster, in hours of the job.
struct EmulatedCharges {
  double save = 0, load = 0, restart = 0, repeat = 0;
  double total() const { return save + load + restart + repeat; }
};

struct SavedEvent {
  std::int64_t slot = 0, samples = 0;
  bool complete = true, consistent = true;
  bool encoded = false;          ///< rows are not stored as they are
  std::int64_t plain_bytes = 0;  ///< of everything, as in memory, all ranks together
  std::int64_t base_slot = -1;
  bool free = false;   ///< before the first slot or after the last: nothing is charged
  double stall_s = 0;  ///< of the training thread
  std::string place;   ///< name of it; "" in the run's folder
};

struct FailedEvent {
  std::int64_t index = 0;  ///< in the schedule
  double hour = 0;         ///< by the schedule
  std::int64_t slot = 0, samples = 0;
  std::vector<int> shards;
  std::string action;
  std::int64_t from_slot = 0, from_samples = 0;  ///< what was read; slot 0 may be initial values
  std::int64_t rows = 0, bytes_read = 0;         ///< of tables, restored alone
  double seconds = 0;                            ///< that the run stood still for it
  std::vector<int> dead;                         ///< ranks whose processes died
  double restore_s = 0;                          ///< of these seconds, once all ranks had joined again
  double lost_access_share = 0;           ///< accesses of lost rows since each was saved, of all so far
  std::map<std::string, double> account;  ///< the policy's
};

/// A checkpoint that was not believed.
struct DistrustedCheckpoint {
  std::int64_t slot = 0;
  std::string reason, path;
};

class RecoveryLog {
 public:
  /// Appends to FOLDER/recovery.jsonl; the charges of an earlier segment are read back. A torn last line is
  /// cut off. `costs`: of an emulated cluster.
  RecoveryLog(FileSystem& files, const std::string& folder, const std::optional<ClusterCosts>& costs,
              double hours_per_slot);

  void saved(const SavedEvent& event, const SaveResult& result);
  /// `repeated`: slots that will be computed again.
  void failed(const FailedEvent& event, std::int64_t repeated);
  /// --resume, from the checkpoint of `slot`.
  void resumed(std::int64_t slot, std::int64_t samples, bool consistent,
               const std::map<std::string, double>& account);
  /// `bad` was not believed, and the run goes on from `to` (-1: from the start). On the medium when this
  /// returns, since it bounds what comes after.
  void fell_back(const RejectedGeneration& bad, std::int64_t to);
  /// Those that were themselves at fault, of earlier processes too, oldest first.
  const std::vector<DistrustedCheckpoint>& fallbacks() const { return fallbacks_; }
  /// `access_shares`: of each failure domain. `wall`: seconds of rank 0's process, split.
  void ended(const std::string& status, std::int64_t slots, const std::vector<double>& access_shares,
             const std::map<std::string, double>& account, const std::map<std::string, double>& wall);

  bool emulated() const { return costs_.has_value(); }
  const EmulatedCharges& charges() const { return charges_; }

 private:
  void read_back();
  void write(const std::string& line, bool durably = false);

  FileSystem& files_;
  std::string path_;
  std::optional<ClusterCosts> costs_;
  double hours_per_slot_;
  std::int64_t complete_bytes_ = 0;  ///< of the newest complete save without an encoding
  EmulatedCharges charges_;
  std::vector<DistrustedCheckpoint> fallbacks_;
};

}  // namespace tenon
