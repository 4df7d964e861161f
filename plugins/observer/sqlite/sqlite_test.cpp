// Rows of a run, many concurrent writers, a locked database, and files that are not databases.
#include "run_index.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace tenon::sqlite {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunIndexTest : public ::testing::Test {
 protected:
  RunIndexTest()
      : folder_(std::filesystem::temp_directory_path() / ("tenon-index-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RunIndexTest() override { std::filesystem::remove_all(folder_); }
  RunInfo info(const std::string& name) const {
    RunInfo info;
    info.name = name;
    info.folder = (folder_ / name / "1").string();
    info.steps = 100;
    info.parameters = 1234;
    return info;
  }
  RunIndex make(double busy_s = 5) {
    return {"", 0, busy_s, [this] { return now_; }};
  }
  std::string file() const { return (folder_ / "index.sqlite").string(); }
  /// Returns the rows of a query, columns joined by '|'.
  std::vector<std::string> rows(const std::string& sql) const {
    Database database(file(), 5);
    std::vector<std::string> lines;
    const auto add = [](void* out, int columns, char** values, char**) {
      std::string line;
      for (int i = 0; i < columns; ++i)
        line += (i > 0 ? "|" : "") + std::string(values[i] ? values[i] : "NULL");
      static_cast<std::vector<std::string>*>(out)->push_back(line);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(database.handle(), sql.c_str(), add, &lines, nullptr), SQLITE_OK);
    return lines;
  }
  static Metric metric(std::int64_t step, double value, Split split = Split::kTrain) {
    Metric metric;
    metric.step = step;
    metric.name = "loss";
    metric.split = split;
    metric.value = value;
    metric.wall_s = 1.5;
    return metric;
  }
  static SlotRecord slot(std::int64_t number) {
    SlotRecord record;
    record.slot = number;
    record.samples = 16 * (number + 1);
    return record;
  }

  std::filesystem::path folder_;
  double now_ = 0;
};

TEST_F(RunIndexTest, ARunIsARowAndAMetricIsARow) {
  RunIndex index = make();
  index.on_start(info("tiny"));
  EXPECT_THAT(rows("SELECT name, status, step, steps, parameters FROM runs"),
              ElementsAre("tiny|running|0|100|1234"));
  index.on_metric(metric(1, 3.0));
  index.on_metric(metric(1, std::nan(""), Split::kVal));
  index.on_slot(slot(0));
  index.on_metric(metric(2, 2.0));
  index.on_slot(slot(1));
  index.on_metric(metric(3, 2.5));
  index.on_slot(slot(2));
  index.on_finish("failed", "rank 0: it's \"full\"");
  EXPECT_THAT(rows("SELECT status, message, step, samples, wall_s FROM runs"),
              ElementsAre("failed|rank 0: it's \"full\"|3|48|1.5"));
  EXPECT_THAT(rows("SELECT split, name, step, last, least, most FROM metrics ORDER BY split"),
              ElementsAre("train|loss|3|2.5|2.0|3.0", "val|loss|1|NULL|NULL|NULL"));
}

TEST_F(RunIndexTest, AResumedRunKeepsItsRow) {
  for (const std::int64_t first : {0, 50}) {
    RunIndex index = make();
    RunInfo run = info("tiny");
    run.first_slot = first;
    index.on_start(run);
    index.on_metric(metric(first + 1, first == 0 ? 5.0 : 4.0));
    index.on_finish("completed", "");
  }
  EXPECT_THAT(rows("SELECT count(*), min(step) FROM runs"), ElementsAre("1|50"));
  EXPECT_THAT(rows("SELECT last, least, most FROM metrics"), ElementsAre("4.0|4.0|5.0"));
}

TEST_F(RunIndexTest, ManyWritersLoseNothing) {
  constexpr int kWriters = 6, kSlots = 25;
  std::vector<std::string> failures(kWriters);
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      try {
        RunIndex index("", 0, 30, [] { return 0.0; });
        index.on_start(info("run" + std::to_string(w)));
        for (int s = 0; s < kSlots; ++s) {
          index.on_metric(metric(s + 1, w + 0.5));
          index.on_slot(slot(s));
        }
        index.on_finish("completed", "");
      } catch (const std::exception& error) {
        failures[w] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(failures, ::testing::Each(""));
  EXPECT_THAT(rows("SELECT count(*), min(step), max(step) FROM runs WHERE status = 'completed'"),
              ElementsAre("6|25|25"));
  EXPECT_THAT(rows("SELECT count(*), sum(last) FROM metrics"), ElementsAre("6|18.0"));
}

TEST_F(RunIndexTest, AHeldDatabaseDelaysButLosesNothing) {
  RunIndex index = make(0.05);
  index.on_start(info("tiny"));
  Database other(file(), 1);
  ASSERT_TRUE(other.begin());
  index.on_metric(metric(1, 3.0));
  index.on_slot(slot(0));  // waits 50 ms, then continues
  try {
    index.on_finish("completed", "");
    ADD_FAILURE() << "the end must be written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("run index " + file() +
                          ": other writers held it for longer than busy_s: database is locked"));
  }
  other.commit();
  index.on_slot(slot(1));
  EXPECT_THAT(rows("SELECT step, last FROM metrics"), ElementsAre("1|3.0"));
}

TEST_F(RunIndexTest, AFileThatIsNoDatabaseIsNamedAndKept) {
  std::ofstream(file()) << std::string(2000, 'x');
  RunIndex index = make();
  try {
    index.on_start(info("tiny"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run index " + file()));
    EXPECT_THAT(error.what(), HasSubstr("file is not a database"));
  }
  EXPECT_EQ(std::filesystem::file_size(file()), 2000u);
}

}  // namespace
}  // namespace tenon::sqlite
