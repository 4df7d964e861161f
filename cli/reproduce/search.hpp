// The kind of studies with a table [search]: an arm whose stage is a search of a shape stands for several,
// one per rank of that search, each trained shortly; arms that follow take the rank that ended best.
#pragma once

#include "reproduce/arms.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// A shape that a search found, as about/search.json has it.
struct FoundShape {
  std::string text;  ///< "width 64, hidden 192"
  double parameters = 0, memory = 0, loss = 0;
};

/// A rank and what its short training came to.
struct TriedShape {
  std::int64_t rank = 0;
  FoundShape shape;
  std::optional<double> trained;
};

struct SearchNumbers : KindNumbers {
  std::vector<TriedShape> tried;
  std::size_t within = 0, enumerated = 0;
  std::int64_t best = 0;     ///< rank of the least metric; 0 = not known
  std::int64_t context = 0;  ///< of the memory
  double memory_limit = 0;   ///< bytes; 0 = none
};

/// Reads about/search.json of a model folder. Throws Error(kRun) that names the file.
SearchNumbers read_search(const std::string& model_folder);

class Search final : public Arms {
 public:
  std::string_view table() const override { return "search"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  std::string size_text(const StudyFile& study, const Size& size) const override;

  /// First the ranks, then all arms.
  Outcome run(const StudyFile& study, const Size& size, const Request& request,
              ab::RunnerOptions runner) const override;

  std::string tables(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;

  /// The study with an arm per rank in place of the searching one, and with `taken` set in those that follow
  /// (0: those are left out).
  StudyFile with_ranks(const StudyFile& given, std::int64_t taken) const;
  /// The rank whose arm has the least mean metric (the greatest, where that is better); 0 without one.
  std::int64_t best_rank(const StudyResult& result) const;

 private:
  void read_numbers(StudyResult& result, const Plan& plan, const std::string& folder) const override;
  std::string name_of(std::int64_t rank) const;
  std::string set_of(std::int64_t rank) const;

  std::string arm, stage;
  std::int64_t ranks = 0;
  std::vector<std::string> then;
};

}  // namespace tenon::reproduce
