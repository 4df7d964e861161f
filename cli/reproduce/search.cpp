// The life of a study of a search; see search.hpp.
#include "reproduce/search.hpp"

#include "ab/format.hpp"
#include "base/file_descriptor.hpp"
#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kStudySearchOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("whose stage searches; it stands for one arm per rank"),
    option::text("stage", nullptr).mandatory().doc_text("of that arm, a transform with [[transform.search]]"),
    option::integer("ranks", "3").between(1, 64).doc_text("of the search that are trained"),
    option::texts("then", "[]")
        .doc_text("arms that take the rank that ended best, in the stage of that name"),
};

bool follows(const std::vector<std::string>& then, const StudyArm& arm) {
  return std::find(then.begin(), then.end(), arm.arm.name) != then.end();
}

/// Every key of a shape but those of its size and loss.
std::string text_of_shape(const nlohmann::ordered_json& shape) {
  std::string out;
  for (const auto& [key, value] : shape.items()) {
    if (key == "parameters") break;  // sizes follow
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, value.get<std::int64_t>());
  }
  return out;
}

}  // namespace

SearchNumbers read_search(const std::string& model_folder) {
  const std::string path = (std::filesystem::path(model_folder) / "about" / "search.json").string();
  const std::optional<std::string> text = base::read_file(path);
  if (!text) fail_run(fmt::format("there is no {}: the stage searches nothing", path));
  SearchNumbers out;
  try {
    const auto json = nlohmann::ordered_json::parse(*text);
    out.enumerated = json.at("enumerated").get<std::size_t>();
    out.within = json.at("within").get<std::size_t>();
    out.context = json.at("bounds").at("context").get<std::int64_t>();
    if (json.at("bounds").at("memory_limit").is_number())
      out.memory_limit = json.at("bounds").at("memory_limit").get<double>();
    for (const auto& shape : json.at("shapes")) {
      TriedShape& tried = out.tried.emplace_back();
      tried.rank = static_cast<std::int64_t>(out.tried.size());
      tried.shape = {text_of_shape(shape), shape.at("parameters").get<double>(),
                     shape.at("memory").get<double>(), shape.at("loss").get<double>()};
    }
  } catch (const nlohmann::json::exception& error) {
    fail_run(fmt::format("{} is not what a search writes: {}", path, error.what()));
  }
  return out;
}

std::vector<config::TableSpecs> Search::file_tables() const {
  return {{"search", kStudySearchOptions}};
}

void Search::read(const Value& table) {
  const Resolution found =
      resolve_options({.table = table, .owner = "search", .specs = option_list(kStudySearchOptions)});
  arm = std::string(found.options->text("arm"));
  stage = std::string(found.options->text("stage"));
  ranks = found.options->integer("ranks");
  then = texts_of(*found.options, "then");
}

void Search::check(const StudyFile& study, Problems& problems) const {
  problems.arm_named("search.arm", arm);
  for (std::size_t i = 0; i < then.size(); ++i) {
    problems.arm_named(fmt::format("search.then[{}]", i), then[i]);
    if (then[i] == arm)
      problems.say(fmt::format("search.then[{}]", i), "the arm that searches cannot follow itself");
  }
  for (const Size& size : study.sizes) {
    if (size.seeds.size() > 1)
      problems.say(fmt::format("size.{}.seeds", size.name),
                   "the shapes that a search finds are those of one seed's model; give one seed");
  }
  problems.alone(*this);
}

std::string Search::name_of(std::int64_t rank) const {
  return fmt::format("{}.{}", arm, rank);
}

std::string Search::set_of(std::int64_t rank) const {
  return fmt::format("at.{}.transform.take={}", stage, rank);
}

std::string Search::size_text(const StudyFile& study, const Size& size) const {
  return fmt::format("{} ranks of a search and {} arms x {} updates", ranks, study.arms.size() - 1,
                     size.steps);
}

StudyFile Search::with_ranks(const StudyFile& given, std::int64_t taken) const {
  StudyFile out = given;
  out.arms.clear();
  for (const StudyArm& each : given.arms) {
    if (each.arm.name != arm) {
      if (follows(then, each) && taken == 0) continue;
      out.arms.push_back(each);
      if (follows(then, each)) out.arms.back().arm.set.push_back(set_of(taken));
      continue;
    }
    for (std::int64_t rank = 1; rank <= ranks; ++rank) {
      StudyArm one = each;
      one.of = each.arm.name;
      one.arm.name = name_of(rank);
      one.title = fmt::format("{}, rank {}", each.title, rank);
      one.arm.set.push_back(set_of(rank));
      one.added = 1;
      out.arms.push_back(std::move(one));
    }
  }
  const auto renamed = [&](std::string& name) {
    if (name == arm) name = name_of(1);
  };
  renamed(out.baseline);
  renamed(out.reference);
  for (StudyArm& each : out.arms) renamed(each.baseline);
  const auto gone = [&](const std::string& name) { return out.arm(name) == nullptr; };
  if (gone(out.baseline)) out.baseline = name_of(1);
  if (!out.reference.empty() && gone(out.reference)) out.reference.clear();
  for (StudyArm& each : out.arms)
    if (gone(each.baseline)) each.baseline = out.baseline;
  if (taken == 0) {
    // These need arms that come later.
    out.differences.clear();
    out.evaluations.clear();
    out.agreements.clear();
    out.decode.reset();
  }
  return out;
}

std::int64_t Search::best_rank(const StudyResult& result) const {
  std::int64_t best = 0;
  double least = 0;
  for (std::int64_t rank = 1; rank <= ranks; ++rank) {
    for (std::size_t a = 0; a < result.arms.size(); ++a) {
      if (result.study.arms[a].arm.name != name_of(rank) || !result.arms[a].value) continue;
      const double value = result.arms[a].value->mean * (result.study.lower_is_better ? 1 : -1);
      if (best != 0 && value >= least) continue;
      best = rank;
      least = value;
    }
  }
  return best;
}

Outcome Search::run(const StudyFile& study, const Size& size, const Request& request,
                    ab::RunnerOptions runner) const {
  Outcome ranked = Arms::run(with_ranks(study, 0), size, request, runner);
  const std::int64_t best = best_rank(ranked.result);
  if (ranked.runs.interrupted || best == 0 || then.empty()) return ranked;
  if (request.progress)
    request.progress(
        fmt::format("reproduce: rank {} of the search ended best; {} follow it", best, fmt::join(then, ", ")),
        true);
  Outcome all = Arms::run(with_ranks(study, best), size, request, std::move(runner));
  all.started += ranked.started;
  all.continued += ranked.continued;
  all.runs.completed += ranked.runs.completed;
  all.runs.failed.insert(all.runs.failed.end(), ranked.runs.failed.begin(), ranked.runs.failed.end());
  return all;
}

void Search::read_numbers(StudyResult& result, const Plan&, const std::string&) const {
  auto numbers = std::make_shared<SearchNumbers>();
  for (std::int64_t rank = 1; rank <= ranks; ++rank) {
    for (std::size_t a = 0; a < result.arms.size(); ++a) {
      if (result.study.arms[a].arm.name != name_of(rank) || result.arms[a].runs.empty()) continue;
      const RunResult& run = result.arms[a].runs.front();
      const auto found = std::find_if(run.stages.begin(), run.stages.end(),
                                      [&](const StageResult& s) { return s.name == stage; });
      if (found == run.stages.end()) continue;
      try {
        if (numbers->tried.empty()) *numbers = read_search(found->folder);
        numbers->tried.at(static_cast<std::size_t>(rank) - 1).trained = run.value;
      } catch (const std::exception& error) {
        result.complete = false;
        result.warnings.push_back(fmt::format("{}: {}", name_of(rank), error.what()));
      }
    }
  }
  numbers->best = best_rank(result);
  result.numbers = std::move(numbers);
}

std::string Search::tables(const StudyResult& r) const {
  const auto& n = r.as<SearchNumbers>();
  std::string out = arms_table(r, false, false);
  out +=
      fmt::format("\n## Shapes\n\n{} shapes enumerated, {} within the bounds.\n\n", n.enumerated, n.within);
  out += head({"rank", "shape", "parameters",
               fmt::format("bytes with {} tokens", count(static_cast<double>(n.context))),
               "loss on calibration data, untrained", r.study.metric + " after short training", "taken"});
  for (const TriedShape& tried : n.tried) {
    out += row({std::to_string(tried.rank), tried.shape.text, count(tried.shape.parameters),
                count(tried.shape.memory), ab::fixed(tried.shape.loss, 4),
                tried.trained ? ab::fixed(*tried.trained, 4) : kNoValue, tried.rank == n.best ? "yes" : ""});
  }
  if (n.memory_limit == 0 || n.best == 0) return out;
  const double formula = n.tried[static_cast<std::size_t>(n.best) - 1].shape.memory;
  out +=
      fmt::format("\nMemory limit: {} bytes. By closed form the taken shape has {}: {}.",
                  count(n.memory_limit), count(formula), formula <= n.memory_limit ? "met" : "**not met**");
  for (const Decoding& d : r.decodings) {
    if (d.context != n.context) continue;
    const auto measured = static_cast<double>(d.weight_bytes + d.kept_bytes);
    out += fmt::format(" Measured on {}: {}, {}.", d.arm, count(measured),
                       measured <= n.memory_limit ? "met" : "**not met**");
  }
  return out + "\n";
}

void Search::json(JsonWriter& json, const StudyResult& r) const {
  const auto& n = r.as<SearchNumbers>();
  json.begin_object("search");
  json.member("enumerated", static_cast<std::int64_t>(n.enumerated));
  json.member("within", static_cast<std::int64_t>(n.within));
  json.member("context", n.context);
  json.member("memory_limit", n.memory_limit > 0 ? n.memory_limit : JsonWriter::kNull);
  json.member("best", n.best);
  json.objects("shapes", n.tried, [&](const TriedShape& tried) {
    json.member("rank", tried.rank);
    json.member("shape", tried.shape.text);
    json.member("parameters", tried.shape.parameters);
    json.member("memory", tried.shape.memory);
    json.member("loss", tried.shape.loss);
    json.member("trained", tried.trained.value_or(JsonWriter::kNull));
  });
  json.end_object();
  Arms::json(json, r);
}

std::shared_ptr<StudyKind> make_search_kind() {
  return std::make_shared<Search>();
}

}  // namespace tenon::reproduce
