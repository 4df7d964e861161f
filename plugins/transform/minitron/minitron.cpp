// describe() measures only where the number of layers that stay leaves open which they are.
#include "minitron.hpp"

#include "figure.hpp"
#include "importance_file.hpp"
#include "pruned_model.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace tenon::minitron {
namespace {

constexpr std::int64_t kMostFile = std::int64_t{1} << 31;
constexpr const char* kLogits = "lm_head.logits_of_calibration";

StoredModel& only_source(std::span<StoredModel* const> sources) {
  if (sources.size() != 1)
    fail_config(fmt::format("transform minitron takes one model, found {}; name one folder in `from`",
                            sources.size()));
  return *sources[0];
}

Targets read_targets(const Options& options) {
  Targets targets;
  const auto integer = [&](const char* name, std::optional<std::int64_t>& target) {
    if (options.has(name)) target = options.integer(name);
  };
  integer("width", targets.width);
  integer("hidden", targets.hidden);
  integer("heads", targets.heads);
  integer("kv_heads", targets.kv_heads);
  integer("mamba_heads", targets.mamba_heads);
  integer("mamba_head_width", targets.mamba_head_width);
  integer("keep_layers", targets.keep_layers);
  if (options.has("layers")) {
    const auto layers = options.integers("layers");
    targets.layers.emplace(layers.begin(), layers.end());
    std::ranges::sort(*targets.layers);
  }
  return targets;
}

Importance drawn(const DecoderShape& shape, std::uint64_t seed, const std::string& method) {
  const auto numbers = [&](const std::string& purpose, std::int64_t count) {
    const RandomKey key = random_key(seed, "minitron." + purpose);
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(random_uniform(key, 0, static_cast<std::uint64_t>(i)));
    return values;
  };
  Importance drawn;
  drawn.width = numbers("width", shape.width);
  Importance::Depth& depth = drawn.depth[method];
  for (const LayerShape* layer : shape.present()) {
    const auto of = [&](const char* axis) { return fmt::format("{}.{}", layer->number, axis); };
    depth.numbers.push_back(layer->number);
    if (layer->kind == LayerKind::kAttention)
      drawn.heads[layer->number] = numbers(of("heads"), layer->heads);
    else if (layer->kind == LayerKind::kFfn)
      drawn.hidden[layer->number] = numbers(of("hidden"), layer->hidden);
    else
      drawn.mamba[layer->number] = numbers(of("mamba"), layer->mamba_heads * layer->mamba_head_width);
  }
  depth.scores = numbers("depth", static_cast<std::int64_t>(depth.numbers.size()));
  return drawn;
}

/// Layers that stay when `count` do. Ascending.
Indices kept_layers(const DecoderShape& shape, const Importance::Depth& depth, std::int64_t count,
                    const std::string& method, bool iterative) {
  Indices present;
  for (const LayerShape* layer : shape.present()) present.push_back(layer->number);
  const std::int64_t gone = static_cast<std::int64_t>(present.size()) - count;
  Indices go;
  if (method == "contiguous" && depth.run == gone) {
    const auto least = std::ranges::min_element(depth.scores) - depth.scores.begin();
    const auto first = std::ranges::find(present, depth.numbers[least]);
    go.assign(first, std::min(present.end(), first + gone));
  } else if (iterative && static_cast<std::int64_t>(depth.removed.size()) >= gone) {
    go.assign(depth.removed.begin(), depth.removed.begin() + gone);
  } else if (method == "contiguous" || iterative || depth.numbers.size() != present.size()) {
    fail_config(
        fmt::format("transform minitron: the importance says which layers cost least by depth = \"{}\"{} for "
                    "another number of them than {}; measure it: give data in place of importance",
                    method, iterative ? ", iterative," : "", gone));
  } else {
    Indices kept;
    for (const std::int64_t index : highest(depth.scores, count)) kept.push_back(depth.numbers[index]);
    return kept;
  }
  std::erase_if(present, [&](std::int64_t number) { return std::ranges::find(go, number) != go.end(); });
  return present;
}

}  // namespace

Minitron::Minitron(const Options& options, Host& host)
    : options_(options), host_(host), targets_(read_targets(options)), given_(targets_) {
  const bool file = options.has("importance");
  if (has_data() + file + is_random() > 1)
    fail_config(
        "transform minitron: data, importance and rank = \"random\" each say what is important; expected one "
        "of them");
  const std::string_view depth = options.text("depth");
  if (options.boolean("iterative") && depth != "loss" && depth != "logit_mse")
    fail_config(
        fmt::format("transform minitron: iterative measures again what depth = \"{}\" measures once; "
                    "expected depth = \"loss\" or \"logit_mse\"",
                    depth));
}

Calibration& Minitron::calibration() {
  if (calibration_ == nullptr)
    calibration_ = std::make_unique<Calibration>(
        host_, *options_.component<Dataset>("data"), options_.component<Device>("device"),
        options_.component<Precision>("precision"), options_.integer("samples"), options_.integer("threads"));
  return *calibration_;
}

Importance Minitron::measured(StoredModel& source, const DecoderShape& shape) {
  Calibration& over = calibration();
  const std::string method(options_.text("depth"));
  const auto present = static_cast<std::int64_t>(shape.present().size());
  const std::int64_t gone = present - targets_.keep_layers.value_or(present);
  const bool runs_layers = method != "bi" && (gone > 0 || method != "contiguous");
  const std::string logits = method == "logit_mse" ? kLogits : "";
  Pass pass(over, calibration_graph(source, over.data(), shape, logits), source,
            logits.empty() ? std::vector<std::string>{} : std::vector<std::string>{logits});
  const auto sums = options_.texts("aggregate");
  Collector collector(shape, kSums.of(sums[0]), kSums.of(sums[1]));
  Pass::Loss loss;
  for (std::int64_t batch = 0; batch < over.batches(); ++batch) {
    const Pass::Loss one = pass.forward(batch, &collector);
    loss.sum += one.sum, loss.count += one.count;
  }
  Importance found = collector.scores();
  require_known_tokens(loss.mean(), over.data(), source.folder());
  if (runs_layers)
    found.depth[method] =
        measure_depth(pass, over, shape, method, gone, options_.boolean("iterative"), logits);
  return found;
}

Importance Minitron::read(const DecoderShape& shape) const {
  const std::string path(options_.text("importance"));
  const auto files = make_posix_files();
  Importance found = read_importance(read_text(*files, path, kMostFile), path);
  require_scores_of(found, shape, path);
  return found;
}

const Importance& Minitron::importance(StoredModel& source, const DecoderShape& shape) {
  if (found_ && known_ == source.digest()) return *found_;
  if (is_random())
    found_ = drawn(shape, static_cast<std::uint64_t>(options_.integer("seed")),
                   std::string(options_.text("depth")));
  else if (options_.has("importance"))
    found_ = read(shape);
  else if (has_data())
    found_ = measured(source, shape);
  else
    fail_config(
        "transform minitron: nothing says what is important; give calibration data: [transform.data], or an "
        "earlier importance = \"FOLDER/about/importance.safetensors\", or rank = \"random\"");
  known_ = source.digest();
  return *found_;
}

const Importance::Depth& Minitron::depth(StoredModel& source, const DecoderShape& shape) {
  const Importance& all = importance(source, shape);
  const std::string method(options_.text("depth"));
  const auto found = all.depth.find(method);
  if (found == all.depth.end())
    fail_config(fmt::format(
        "transform minitron: the importance has no scores of layers by depth = \"{}\"; measure it: "
        "give data in place of importance",
        method));
  return found->second;
}

Plan Minitron::planned(StoredModel& source, const DecoderShape& shape, const Targets& targets) {
  std::optional<Indices> kept = targets.layers;
  const auto present = static_cast<std::int64_t>(shape.present().size());
  if (targets.keep_layers && *targets.keep_layers < present) {
    const std::string method(options_.text("depth"));
    const bool random = is_random();
    kept = kept_layers(shape, depth(source, shape), *targets.keep_layers, random ? "random" : method,
                       !random && options_.boolean("iterative"));
  }
  return make_plan(shape, targets, kept ? &*kept : nullptr);
}

Minitron::Described Minitron::described(StoredModel& source) {
  Described found{read_shape(source), {}};
  if (!options_.tables("search").empty()) search(source, found.shape);
  require_possible(targets_, found.shape, source.folder());
  found.plan = planned(source, found.shape, targets_);
  return found;
}

/// With their sizes. A value of a list that no shape can have is a mistake; a pair that does not fit is not.
std::vector<Candidate> Minitron::possible(StoredModel& source, const DecoderShape& shape,
                                          const Options& lists, std::int64_t context,
                                          std::size_t& enumerated) {
  const DataInfo& data = calibration().data();
  const Precision* policy = options_.component<Precision>("precision");
  std::vector<Candidate> out;
  std::string first_problem;
  const std::vector<Targets> all = combinations(lists, given_);
  enumerated = all.size();
  for (const Targets& targets : all) {
    try {
      require_possible(targets, shape, source.folder());
    } catch (const Error& error) {
      if (first_problem.empty()) first_problem = error.what();
      continue;
    }
    Plan plan = planned(source, shape, targets);
    const Kept any = any_kept(shape, plan);
    PrunedModel model(source, shape, std::move(plan), targets, any, false);
    const std::int64_t element =
        dtype_bytes(policy != nullptr ? policy->activations() : model.parameters().front().dtype, 1);
    out.push_back({targets, size_of(model.parameters(), model.graph(data), context, element), 0});
  }
  require_used(lists, out, first_problem);
  return out;
}

void Minitron::search(StoredModel& source, const DecoderShape& shape) {
  if (searched_ && searched_digest_ == source.digest()) return;
  const std::vector<const Options*> tables = options_.tables("search");
  if (tables.size() > 1)
    fail_config(
        fmt::format("transform minitron: {} tables [[transform.search]]; expected one", tables.size()));
  if (!has_data())
    fail_config(
        "transform minitron: a search measures losses; give calibration data: [transform.data], in place of "
        "importance or rank = \"random\"");
  targets_ = given_;
  // One measurement of layers serves all counts: that of the fewest that stay.
  const auto counts = tables[0]->integers("keep_layers");
  if (!counts.empty()) {
    if (options_.text("depth") == "contiguous" && counts.size() > 1)
      fail_config(
          "transform minitron: depth = \"contiguous\" is measured for one number of layers; search with bi, "
          "loss or logit_mse");
    targets_.keep_layers = std::ranges::min(counts);
  }
  Searched found;
  found.bounds = read_bounds(*tables[0]);
  if (found.bounds.context == 0) found.bounds.context = calibration().data().fields.front().shape[0];
  found.ranked =
      within(possible(source, shape, *tables[0], found.bounds.context, found.enumerated), found.bounds);
  const auto take = static_cast<std::size_t>(options_.integer("take"));
  if (take > found.ranked.size())
    fail_config(fmt::format(
        "transform minitron: take = {}, and {} shapes are within the bounds; expected at most that", take,
        found.ranked.size()));
  for (Candidate& candidate : found.ranked) {
    Plan plan = planned(source, shape, candidate.targets);
    const Kept kept = choose(shape, plan, importance(source, shape));
    PrunedModel model(source, shape, std::move(plan), candidate.targets, kept,
                      options_.boolean("merge_heads"));
    candidate.loss = Pass(calibration(), model.graph(calibration().data()), model, {}).loss();
    if (!std::isfinite(candidate.loss))
      fail_run(fmt::format("transform minitron: the loss of {} is {}", shape_text(candidate.targets),
                           candidate.loss));
  }
  rank(found.ranked);
  found.taken = take - 1;
  targets_ = found.ranked[found.taken].targets;
  searched_ = std::move(found);
  searched_digest_ = source.digest();
}

TransformedModel Minitron::describe(std::span<StoredModel* const> sources) {
  StoredModel& source = only_source(sources);
  const Described found = described(source);
  TransformedModel result{planned_model(source.description(), found.shape, found.plan, targets_), {}};
  for (TensorCut& cut : cuts_of(source, found.shape, found.plan, any_kept(found.shape, found.plan), false))
    result.parameters.push_back(std::move(cut.result));
  return result;
}

void Minitron::run(std::span<StoredModel* const> sources, TensorWriter& out) {
  StoredModel& source = only_source(sources);
  const Described found = described(source);
  const bool cuts = cuts_inside(found.shape, found.plan);
  const Importance& scores =
      cuts || has_data() ? importance(source, found.shape) : found_.emplace(found_.value_or(Importance{}));
  const Kept kept = choose(found.shape, found.plan, scores);
  for (const TensorCut& cut : cuts_of(source, found.shape, found.plan, kept, options_.boolean("merge_heads")))
    read_cut(source, cut, [&](TensorView piece) { out.write(piece); });
  write_files(found.shape, found.plan, kept, source, out);
}

void Minitron::write_files(const DecoderShape& shape, const Plan& plan, const Kept& kept,
                           const StoredModel& source, TensorWriter& out) const {
  const Importance& scores = *found_;
  std::vector<std::pair<std::string, std::string>> facts{{"digest", std::string(source.digest())},
                                                         {"folder", std::string(source.folder())}};
  if (calibration_ != nullptr) {
    facts.emplace_back("samples", std::to_string(calibration_->samples()));
    for (const std::string_view sum : options_.texts("aggregate")) {
      facts.emplace_back(facts.back().first == "over_sequence" ? "over_batch" : "over_sequence", sum);
    }
  }
  if (searched_) {
    out.file("search.json", search_json(*searched_));
    out.file("search.svg", search_svg(*searched_));
  }
  out.file("importance.safetensors", importance_bytes(scores, shape, facts));
  for (const auto& [axis, drawing] : figures(scores, shape, plan, kept))
    out.file(fmt::format("importance_{}.svg", axis), drawing);
}

}  // namespace tenon::minitron

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.minitron",
                               .version = "0.1.0",
                               .summary = "decoders cut to smaller ones by the importance of their parts"},
             tenon::minitron::Minitron)
