// Observer `sqlite` (contract observer/1): one row per run and one per metric in a database that many runs
// share. It is an index for queries across runs; metrics.jsonl remains authoritative.
#pragma once

#include "database.hpp"

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace tenon::sqlite {

class RunIndex final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("file", "''")
          .doc_text("the database; empty = index.sqlite beside the folders of all runs"),
      option::real("every_s", "10")
          .at_least(0)
          .in_unit("s")
          .doc_text("how often a running run is brought up to date"),
      option::real("busy_s", "30").at_least(0).in_unit("s").doc_text("longest wait for other writers"),
  };
  static constexpr ComponentInfo kInfo{.id = "sqlite",
                                       .summary = "index of runs and their metrics in one SQLite database",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};
  /// Seconds of a monotonic clock.
  using Now = std::function<double()>;

  explicit RunIndex(const Options& options);
  RunIndex(std::string file, double every_s, double busy_s, Now now);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric& metric) override;
  void on_span(const Span&) override {}
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  struct Line {
    std::string split, name;
    std::int64_t step = 0;
    double last = 0, least = 0, most = 0;
    bool fresh = false;  ///< not in the database yet
  };
  /// Returns false when other writers held the database beyond the deadline.
  bool store(std::string_view status, std::string_view message);

  std::string file_;
  double every_s_, busy_s_;
  Now now_;
  double stored_at_ = 0;
  RunInfo run_;
  std::string folder_, key_;
  std::int64_t step_ = 0, samples_ = 0, tokens_ = 0;
  double wall_s_ = 0;
  std::map<std::string, Line> lines_;  ///< by "train/loss"
  std::unique_ptr<Database> database_;
  std::unique_ptr<Statement> put_run_, put_metric_;
};

}  // namespace tenon::sqlite
