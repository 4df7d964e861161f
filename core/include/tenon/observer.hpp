// Contract `observer/1`: what is written down. Observers see copies and never change training; they run on
// rank 0's training thread unless they ask for every rank.
#pragma once

#include <tenon/dataset.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

struct RunInfo {
  std::string name;
  std::string folder;  ///< runs/<name>/<attempt>
  std::int64_t first_slot = 0;
  std::int64_t steps = 0;
  int ranks = 1;
  int rank = 0;
  std::int64_t parameters = 0;
  bool terminal = false;  ///< a person watches standard error
  bool quiet = false;
};

/// One line of metrics.jsonl.
struct Metric {
  std::int64_t step = 0;  ///< slots done
  Split split = Split::kTrain;
  std::string_view name;
  double value = 0;
  double wall_s = 0;
  std::int64_t samples = 0, tokens = 0;
  std::uint64_t bytes_sent = 0;
};

/// The end of a slot.
struct SlotRecord {
  std::int64_t slot = 0;
  bool applied = false;
  double loss = 0, lr = 0, gradient_norm = 0;
  double seconds = 0;
  std::int64_t samples = 0, tokens = 0;  ///< since the run began
};

/// An interval on a track: "compute", "communication", "save", ...
struct Span {
  std::string_view track;
  std::string_view name;
  double begin_s = 0, end_s = 0;
};

class Observer {
 public:
  using Interface = Observer;
  static constexpr const char* kKind = "observer/1";
  virtual ~Observer();
  virtual bool every_rank() const = 0;
  virtual void on_start(const RunInfo& info) = 0;
  virtual void on_slot(const SlotRecord& record) = 0;
  virtual void on_metric(const Metric& metric) = 0;
  virtual void on_span(const Span& span) = 0;
  virtual void on_finish(std::string_view status, std::string_view message) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
