// A kind of study: everything in the life of a study that depends on the table that its file has ([slabs],
// say), from the reading of this table to the last words of the command. What is the same for all kinds is in
// study_file.hpp, plan.hpp, results.hpp, render.hpp and reproduce.hpp, which name none. A new kind is a class
// in a source of its own and a line in kinds.cpp.
#pragma once

#include "config/run_schema.hpp"
#include "reproduce/reproduce.hpp"

#include <tenon/config.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

/// Errors of a study file, each at the place of its value. Keys are written as "slabs.link[0].name".
class Problems {
 public:
  using Kinds = std::vector<std::shared_ptr<const StudyKind>>;

  /// `all`: every kind that there is, `there`: those of them whose tables the file has.
  Problems(const StudyFile& study, const Config& config, const Kinds& all, const Kinds& there)
      : study_(study), config_(config), all_(all), there_(there) {}

  void say(const std::string& key, const std::string& problem);
  /// Says so, with the nearest one, if no arm has the name.
  void arm_named(const std::string& key, const std::string& name);
  /// Says so if the file has the table of another kind that stands before `kind` in the list of all.
  void alone(const StudyKind& kind);
  /// Tables of all kinds before `kind`, as "[scaling]", if the file has one of them; else empty.
  std::vector<std::string> tables_before(const StudyKind& kind) const;
  /// Kinds whose tables the file has; a study without problems has at most one.
  const Kinds& kinds() const { return there_; }
  /// Throws Error(kConfig) with one line per problem.
  void finish() const;

 private:
  const StudyFile& study_;
  const Config& config_;
  const Kinds &all_, &there_;
  std::vector<std::string> problems_;
};

/// An instance is the table as a file has it.
class StudyKind {
 public:
  virtual ~StudyKind() = default;

  // The study file.

  /// Name of the table; "" for the kind of studies without any.
  virtual std::string_view table() const = 0;
  /// Reads the table. Throws Error(kConfig) for keys and types.
  virtual void read(const Value& table) = 0;
  /// The table, if there is one, and those inside it.
  virtual std::vector<config::TableSpecs> file_tables() const { return {}; }
  /// Checks the table, and what it asks of sizes and arms. A kind that comes after others excludes them by
  /// Problems::alone() or in words of its own.
  virtual void check(const StudyFile& study, Problems& problems) const = 0;
  /// Checks a study without the table for what only this kind gives a meaning.
  virtual void check_without(const StudyFile& study, Problems& problems) const {}
  /// Whether a size says the steps of its runs.
  virtual bool counts_steps() const { return true; }
  /// Whether it gives samples and points of a size a meaning, and checks them.
  virtual bool has_points() const { return false; }
  /// "11 arms x 3 seeds x 1000 updates".
  virtual std::string size_text(const StudyFile& study, const Size& size) const = 0;
  /// Further members of a size in the list of studies.
  virtual void size_json(JsonWriter& json, const StudyFile& study, const Size& size) const {}

  // Runs and their results.

  /// Makes the missing runs and reads the results of all. `runner` has the study's folder; the paths of the
  /// outcome are not set. Throws as reproduce() does.
  virtual Outcome run(const StudyFile& study, const Size& size, const Request& request,
                      ab::RunnerOptions runner) const = 0;

  // table.md, table.json and figure.svg.

  /// The main tables, and how to read them.
  virtual std::string tables(const StudyResult& result) const = 0;
  /// Whether tables() shows the figure; else it follows them.
  virtual bool places_figure() const { return false; }
  /// Sections with everything about every run.
  virtual std::string every_run(const StudyResult& result) const = 0;
  /// Members of table.json about the kind's numbers, and the paper's (paper_values_json()).
  virtual void json(JsonWriter& json, const StudyResult& result) const = 0;
  /// The whole file.
  virtual std::string figure(const StudyResult& result) const = 0;

  // The terminal.

  /// A line per arm.
  virtual std::string lines(const StudyResult& result) const = 0;
  /// How to read them.
  virtual std::string legend(const StudyResult& result) const { return ""; }
};

/// One of each kind, in the order in which their tables are read and checked. The first is that of studies
/// without a table. In kinds.cpp.
std::vector<std::shared_ptr<StudyKind>> study_kinds();

}  // namespace tenon::reproduce
