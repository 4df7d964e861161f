// DIR/looks.json: the plan of a sequential study by its digest, and the runs that its looks have used. It
// keeps a study that goes on later from going on under another plan, or with other runs.
#pragma once

#include "ab/study.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::ab {

/// Digest of the experiment and of the configurations of its arms, whatever the names of the files.
std::string plan_digest(const Experiment& experiment);

class LookRecord {
 public:
  /// The record of a folder that is about to be continued or begun; writes it. Throws Error(kConfig) if the
  /// folder holds a study of another plan, or runs without a record.
  static LookRecord begin(const std::string& folder, const std::string& digest);
  /// That of a folder, for reading; empty without a file.
  static LookRecord read(const std::string& folder);

  /// Throws Error(kRun) if the run of an earlier look is gone or another attempt is newest.
  void check_runs() const;
  /// Throws Error(kRun) if a value of an earlier look is not what it was.
  void check_values(const Study& study) const;
  /// Adds the runs of a look, and writes the file.
  void add(const Study& study);

 private:
  struct Used {
    std::string arm;
    std::int64_t seed = 0;
    int attempt = 0;
    double value = 0;
  };
  const Used* find(const std::string& arm, std::int64_t seed) const;
  void write() const;

  std::string folder_, digest_;
  std::vector<Used> used_;
};

/// Moves what a study left in `folder` to `folder`/earlier/<n>, so that another can begin there.
void put_aside(const std::string& folder);

}  // namespace tenon::ab
