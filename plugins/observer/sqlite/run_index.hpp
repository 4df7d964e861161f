// Observer `sqlite` (contract observer/1): one row per run and one per metric in a database that many runs
// share. It is an index for queries across runs; metrics.jsonl remains authoritative.
#pragma once

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tenon::sqlite {

// The subset of SQLite that the index needs: a connection that waits for other writers up to a deadline,
// statements with bound values, and scoped transactions. Library errors keep the library's own text.

struct CloseDatabase {
  void operator()(sqlite3* handle) const;
};
struct EndStatement {
  void operator()(sqlite3_stmt* handle) const;
};

class Database {
 public:
  /// Opens or creates the file. Throws Error(kRun) with the path and the reason.
  Database(const std::string& path, double busy_deadline_s);
  void execute(const std::string& sql);
  /// Returns false when another writer holds the database beyond the deadline.
  bool begin();
  void commit() { execute("COMMIT"); }
  void roll_back() noexcept;
  sqlite3* handle() const { return handle_.get(); }
  [[noreturn]] void fail(std::string_view what) const;

 private:
  std::string path_;
  double deadline_s_;
  std::unique_ptr<sqlite3, CloseDatabase> handle_;
};

class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  Statement& bind(int position, std::string_view text);
  Statement& bind(int position, std::int64_t value);
  /// NaN is stored as NULL, SQLite's own choice.
  Statement& bind(int position, double value);
  /// Runs a statement that returns no rows, and resets it for the next run.
  void run();

 private:
  Database& database_;
  std::unique_ptr<sqlite3_stmt, EndStatement> handle_;
};

class RunIndex final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("file", "''")
          .doc_text("path of the database; empty = index.sqlite beside the folders of all runs"),
      option::real("every_s", "10")
          .at_least(0)
          .in_unit("s")
          .doc_text("how often the entry of a running run is updated"),
      option::real("busy_s", "30").at_least(0).in_unit("s").doc_text("longest wait for other writers"),
  };
  static constexpr ComponentInfo kInfo{.id = "sqlite",
                                       .summary = "index of runs and their metrics in one SQLite database",
                                       .options = kOptions};
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
