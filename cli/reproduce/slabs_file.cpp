// Reading and checking of slabs_file.hpp.
#include "reproduce/slabs_file.hpp"

#include "reproduce/study_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kSlabsOptions[] = {
    option::integer("cut", "0").between(0, 2).doc_text("dimension of the points that lies over the ranks"),
    option::integers("measured", "[1, 2]").doc_text("ranks as threads under the wall clock"),
    option::integers("counted", "[1, 2]")
        .doc_text("ranks under the simulated clock, whose bytes are counted"),
    option::integers("predicted", nullptr).mandatory().doc_text("ranks that closed forms are computed for"),
};

constexpr OptionSpec kSlabLinkOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("of the link in table.json"),
    option::text("title", "\"\"").doc_text("for the table; the name if absent"),
    option::real("bandwidth", nullptr)
        .mandatory()
        .at_least(1)
        .in_unit("bytes/s")
        .doc_text("of one direction of a rank's link"),
    option::real("latency", "0").at_least(0).in_unit("s").doc_text("of a message"),
};

constexpr OptionSpec kProblemOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("which arm solves it"),
    option::text("size", nullptr).mandatory().doc_text("at which size of the study"),
    option::integers("points", nullptr).mandatory().at_least(1).doc_text("of the field, per dimension"),
    option::integers("modes", nullptr).mandatory().at_least(1).doc_text("kept per dimension"),
    option::boolean("of_one_rank", "false")
        .doc_text("points and modes along the cut are those of one rank: weak scaling"),
};

using SaySlabs = std::function<void(const std::string&, const std::string&)>;

void check_ranks(const std::vector<std::int64_t>& ranks, const std::string& key, const SaySlabs& say) {
  if (ranks.empty()) say(key, "name at least one number of ranks, e.g. [1, 2, 4]");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 1 || ranks[i] > 4096)
      say(key, fmt::format("{} is no number of ranks; expected 1 to 4096", ranks[i]));
    if (i > 0 && ranks[i] <= ranks[i - 1])
      say(key, fmt::format("{} follows {}; values must ascend", ranks[i], ranks[i - 1]));
  }
}

/// Returns "", or why the problem cannot be sharded over so many ranks.
std::string refusal(const SlabProblem& problem, std::int64_t ranks, int cut) {
  const auto at = static_cast<std::size_t>(cut);
  if (!problem.of_one_rank && problem.points[at] % ranks != 0)
    return fmt::format("{} points along dimension {} are no equal slabs for {} ranks", problem.points[at],
                       cut, ranks);
  const SlabOperator whole = problem.whole(ranks, cut), local = problem.local(ranks, cut);
  if (whole.useful_ranks() < ranks)
    return fmt::format(
        "{} ranks share {} modes along dimension {}: some would have none; keep more modes, "
        "or predict fewer ranks",
        ranks, whole.kept(whole.other()), whole.other());
  for (int dim = 0; dim < static_cast<int>(local.points.size()); ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t most = local.points[d] / 2 + (d + 1 == local.points.size() ? 1 : 0);
    if (local.modes[d] > most)
      return fmt::format("on one of {} ranks dimension {} has {} points, and {} modes: expected at most {}",
                         ranks, dim, local.points[d], local.modes[d], most);
  }
  return "";
}

void check_problem(const StudyFile& study, std::size_t index, const SaySlabs& say) {
  const Slabs& slabs = *study.slabs;
  const SlabProblem& problem = slabs.problems[index];
  const auto key = [&](const char* name) { return fmt::format("slabs.problem[{}].{}", index, name); };
  const Size* size = study.size(problem.size);
  if (size == nullptr) return say(key("size"), fmt::format("the study has no size '{}'", problem.size));
  if (slabs.problem(problem.arm, problem.size) != &problem)
    say(key("size"), fmt::format("arm '{}' has two problems at size {}", problem.arm, problem.size));
  const std::size_t dims = problem.points.size();
  if (dims < 2 || dims > 4) {
    say(key("points"), fmt::format("expected 2 to 4 dimensions, found {}", dims));
  } else if (problem.modes.size() != dims) {
    say(key("modes"), fmt::format("expected {} numbers as in points, found {}", dims, problem.modes.size()));
  } else if (slabs.cut + 1 >= static_cast<int>(dims)) {
    say("slabs.cut", fmt::format("slabs need the last dimension whole: expected a cut below {}, found {}",
                                 dims - 1, slabs.cut));
  } else {
    for (const auto* list : {&slabs.measured, &slabs.counted, &slabs.predicted_at(*size)}) {
      for (const std::int64_t ranks : *list) {
        const std::string why = ranks < 1 ? "" : refusal(problem, ranks, slabs.cut);
        if (why.empty()) continue;
        say(key("points"), why);
        return;
      }
    }
  }
}

}  // namespace

SlabOperator SlabProblem::whole(std::int64_t ranks, int cut) const {
  SlabOperator op{.points = points, .modes = modes, .cut = cut};
  const auto at = static_cast<std::size_t>(cut);
  if (of_one_rank) op.points[at] *= ranks, op.modes[at] *= ranks;
  return op;
}

SlabOperator SlabProblem::local(std::int64_t ranks, int cut) const {
  SlabOperator op{.points = points, .modes = modes, .cut = cut};
  const auto at = static_cast<std::size_t>(cut);
  if (!of_one_rank) op.points[at] /= ranks, op.modes[at] = std::max<std::int64_t>(1, op.modes[at] / ranks);
  return op;
}

const std::vector<std::int64_t>& Slabs::predicted_at(const Size& size) const {
  return size.points.empty() ? predicted : size.points;
}

const SlabProblem* Slabs::problem(const std::string& arm, const std::string& size) const {
  for (const SlabProblem& one : problems)
    if (one.arm == arm && one.size == size) return &one;
  return nullptr;
}

Slabs read_slabs(const Value& table) {
  OptionRequest request{.table = table, .owner = "slabs", .specs = option_list(kSlabsOptions)};
  for (const char* key : {"link", "problem"}) request.other_keys.push_back(key);
  const Resolution found = resolve_options(request);
  Slabs out;
  out.cut = static_cast<int>(found.options->integer("cut"));
  out.measured = integers_of(*found.options, "measured");
  out.counted = integers_of(*found.options, "counted");
  out.predicted = integers_of(*found.options, "predicted");
  const auto each = [&](const char* key, std::span<const OptionSpec> specs, const auto& add) {
    const Value* list = table.find(key);
    for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
      const Resolution one = resolve_options({.table = list->array()[i],
                                              .owner = fmt::format("slabs.{}[{}]", key, i),
                                              .specs = option_list(specs)});
      add(*one.options);
    }
  };
  each("link", kSlabLinkOptions, [&](const tenon::Options& options) {
    const std::string name(options.text("name")), title(options.text("title"));
    out.links.push_back(
        {name, title.empty() ? name : title, options.real("bandwidth"), options.real("latency")});
  });
  each("problem", kProblemOptions, [&](const tenon::Options& options) {
    out.problems.push_back({std::string(options.text("arm")), std::string(options.text("size")),
                            integers_of(options, "points"), integers_of(options, "modes"),
                            options.boolean("of_one_rank")});
  });
  return out;
}

void check_slabs(const StudyFile& study, const SaySlabs& say,
                 const std::function<void(const std::string&, const std::string&)>& arm_named) {
  const Slabs& slabs = *study.slabs;
  check_ranks(slabs.measured, "slabs.measured", say);
  check_ranks(slabs.counted, "slabs.counted", say);
  check_ranks(slabs.predicted, "slabs.predicted", say);
  if (slabs.links.empty())
    say("slabs", "efficiency needs a link: [[slabs.link]] with name, bandwidth and latency");
  std::set<std::string> names;
  for (std::size_t i = 0; i < slabs.links.size(); ++i) {
    if (!names.insert(slabs.links[i].name).second)
      say(fmt::format("slabs.link[{}].name", i),
          fmt::format("two links are called '{}'", slabs.links[i].name));
  }
  for (std::size_t i = 0; i < slabs.problems.size(); ++i) {
    arm_named(fmt::format("slabs.problem[{}].arm", i), slabs.problems[i].arm);
    check_problem(study, i, say);
  }
  for (const Size& size : study.sizes) {
    if (!size.points.empty()) check_ranks(size.points, fmt::format("size.{}.points", size.name), say);
    for (const StudyArm& arm : study.arms) {
      if (slabs.problem(arm.arm.name, size.name) == nullptr)
        say("slabs.problem",
            fmt::format("arm '{}' has none at size {}: [[slabs.problem]] with arm, size, points and modes",
                        arm.arm.name, size.name));
    }
  }
}

}  // namespace tenon::reproduce
