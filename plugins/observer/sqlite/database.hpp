// The subset of SQLite that the index needs: a connection that waits for other writers up to a deadline,
// statements with bound values, and scoped transactions. Library errors keep the library's own text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tenon::sqlite {

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

}  // namespace tenon::sqlite
