// Tables and writes of run_index.hpp. Values are buffered in memory; each write is one short transaction.
#include "run_index.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace tenon::sqlite {

// Calls of SQLite's C interface.

void CloseDatabase::operator()(sqlite3* handle) const {
  sqlite3_close_v2(handle);
}

void EndStatement::operator()(sqlite3_stmt* handle) const {
  sqlite3_finalize(handle);
}

Database::Database(const std::string& path, double busy_deadline_s)
    : path_(path), deadline_s_(busy_deadline_s) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK) fail("cannot open it");
  sqlite3_busy_timeout(handle, static_cast<int>(busy_deadline_s * 1000));
}

void Database::fail(std::string_view what) const {
  const char* reason = handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_.get());
  fail_run("run index " + path_ + ": " + std::string(what) + ": " + reason);
}

void Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(sql);
}

bool Database::begin() {
  const int code = sqlite3_exec(handle_.get(), "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
  if (code == SQLITE_BUSY) return false;
  if (code != SQLITE_OK) fail("BEGIN IMMEDIATE");
  return true;
}

void Database::roll_back() noexcept {
  sqlite3_exec(handle_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &handle, nullptr) !=
      SQLITE_OK)
    database.fail(sql);
  handle_.reset(handle);
}

Statement& Statement::bind(int position, std::string_view text) {
  sqlite3_bind_text(handle_.get(), position, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::bind(int position, std::int64_t value) {
  sqlite3_bind_int64(handle_.get(), position, value);
  return *this;
}

Statement& Statement::bind(int position, double value) {
  sqlite3_bind_double(handle_.get(), position, value);
  return *this;
}

void Statement::run() {
  const int code = sqlite3_step(handle_.get());
  sqlite3_reset(handle_.get());
  if (code != SQLITE_DONE && code != SQLITE_ROW) database_.fail("a write");
}

namespace {

constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS runs (
  folder TEXT PRIMARY KEY, name TEXT, status TEXT, message TEXT,
  started TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')), updated TEXT,
  step INTEGER, steps INTEGER, ranks INTEGER, parameters INTEGER, samples INTEGER, tokens INTEGER, wall_s REAL);
CREATE TABLE IF NOT EXISTS metrics (
  folder TEXT REFERENCES runs(folder), split TEXT, name TEXT, step INTEGER, last REAL, least REAL, most REAL,
  PRIMARY KEY (folder, split, name));
)sql";

constexpr const char* kPutRun = R"sql(
INSERT INTO runs (folder, name, status, message, updated, step, steps, ranks, parameters, samples, tokens, wall_s)
VALUES (?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (folder) DO UPDATE SET name = ?2, status = ?3, message = ?4, updated = excluded.updated, step = ?5,
  steps = ?6, ranks = ?7, parameters = ?8, samples = ?9, tokens = ?10, wall_s = ?11)sql";

constexpr const char* kPutMetric = R"sql(
INSERT INTO metrics (folder, split, name, step, last, least, most) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (folder, split, name) DO UPDATE SET step = ?4, last = ?5, least = min(ifnull(least, ?6), ?6),
  most = max(ifnull(most, ?7), ?7))sql";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

RunIndex::RunIndex(const Options& options)
    : RunIndex(std::string(options.text("file")), options.real("every_s"), options.real("busy_s"),
               &steady_seconds) {}

RunIndex::RunIndex(std::string file, double every_s, double busy_s, Now now)
    : file_(std::move(file)), every_s_(every_s), busy_s_(busy_s), now_(std::move(now)) {}

void RunIndex::on_start(const RunInfo& info) {
  run_ = info;
  step_ = info.first_slot;
  const std::filesystem::path folder = std::filesystem::absolute(info.folder).lexically_normal();
  folder_ = folder.string();
  // The run folder is runs/<name>/<attempt>; the index is in runs/.
  if (file_.empty()) file_ = (folder.parent_path().parent_path() / "index.sqlite").string();
  database_ = std::make_unique<Database>(file_, busy_s_);
  if (!database_->begin()) database_->fail("other writers held it for longer than busy_s");
  database_->execute(kTables);
  database_->commit();
  put_run_ = std::make_unique<Statement>(*database_, kPutRun);
  put_metric_ = std::make_unique<Statement>(*database_, kPutMetric);
  if (!store("running", "")) database_->fail("other writers held it for longer than busy_s");
}

void RunIndex::on_metric(const Metric& metric) {
  key_.assign(split_name(metric)).append("/").append(metric.name);
  const auto [found, fresh] = lines_.try_emplace(key_);
  Line& line = found->second;
  if (fresh) {
    line.split = split_name(metric);
    line.name = metric.name;
  }
  line.step = metric.step;
  line.last = metric.value;
  line.least = fresh ? metric.value : std::fmin(line.least, metric.value);
  line.most = fresh ? metric.value : std::fmax(line.most, metric.value);
  line.fresh = true;
  wall_s_ = metric.wall_s;
}

void RunIndex::on_slot(const SlotRecord& record) {
  step_ = record.slot + 1;
  samples_ = record.samples;
  tokens_ = record.tokens;
  // If the database is busy, the next call retries; nothing is lost meanwhile.
  if (now_() - stored_at_ >= every_s_) store("running", "");
}

void RunIndex::on_finish(std::string_view status, std::string_view message) {
  if (database_ == nullptr) return;
  if (!store(status, message)) database_->fail("other writers held it for longer than busy_s");
}

bool RunIndex::store(std::string_view status, std::string_view message) {
  stored_at_ = now_();
  if (!database_->begin()) return false;
  try {
    put_run_->bind(1, folder_).bind(2, run_.name).bind(3, status).bind(4, message);
    put_run_->bind(5, step_).bind(6, run_.steps).bind(7, static_cast<std::int64_t>(run_.ranks));
    put_run_->bind(8, run_.parameters).bind(9, samples_).bind(10, tokens_).bind(11, wall_s_);
    put_run_->run();
    for (auto& [key, line] : lines_) {
      if (!line.fresh) continue;
      put_metric_->bind(1, folder_).bind(2, line.split).bind(3, line.name).bind(4, line.step);
      put_metric_->bind(5, line.last).bind(6, line.least).bind(7, line.most);
      put_metric_->run();
    }
    database_->commit();
  } catch (...) {
    database_->roll_back();
    throw;
  }
  for (auto& [key, line] : lines_) line.fresh = false;
  stored_at_ = now_();
  return true;
}

}  // namespace tenon::sqlite

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sqlite",
                               .version = "0.1.0",
                               .summary = "index of runs in one SQLite database"},
             tenon::sqlite::RunIndex)
