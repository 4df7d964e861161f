// Calls of SQLite's C interface.
#include "database.hpp"

#include <tenon/error.hpp>

#include <sqlite3.h>

namespace tenon::sqlite {

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

}  // namespace tenon::sqlite
