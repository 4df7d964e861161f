#include "config/core_reader.hpp"

#include "config/option_check.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

namespace {

std::optional<std::int64_t> optional_integer(const Options& options, std::string_view name) {
  return options.has(name) ? std::optional(options.integer(name)) : std::nullopt;
}

std::optional<double> optional_real(const Options& options, std::string_view name) {
  return options.has(name) ? std::optional(options.real(name)) : std::nullopt;
}

}  // namespace

std::int64_t ParallelSettings::ranks_per_replica() const {
  std::int64_t product = 1;
  for (const int extent : grid) {
    // Each extent is at most 2^20; a product beyond 2^40 is refused by the code that starts the ranks, not by
    // overflow.
    product = std::min<std::int64_t>(product * extent, std::int64_t{1} << 40);
  }
  return product;
}

bool is_safe_name(std::string_view name) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(name, control)) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part == "latest") return false;
    begin = end + 1;
  }
  return true;
}

// `shared`: other keys of the table belong to a component and are not judged here.
Resolution CoreReader::resolve(const Value& table, const std::string& path, bool shared) {
  OptionRequest request{.table = table,
                        .owner = is_core_list(path) ? "[[" + path + "]]" : "[" + path + "]",
                        .specs = option_list(core_specs(path)),
                        .hint = fmt::format("known: {}", fmt::join(core_keys(path), ", "))};
  if (shared && table.is_table()) {
    for (const Member& member : table.table()) request.other_keys.push_back(member.key);
  } else {
    request.other_keys = core_children(path);
  }
  Resolution resolution = resolve_options(request, problems_);
  warnings_.insert(warnings_.end(), resolution.warnings.begin(), resolution.warnings.end());
  if (shared) resolution.table.erase("type");
  return resolution;
}

template <typename Read>
Value CoreReader::read(const Value& table, const std::string& path, bool shared, Read settings) {
  Resolution resolution = resolve(table, path, shared);
  if (problems_.empty()) settings(*resolution.options);
  return std::move(resolution.table);
}

template <typename Read>
Value CoreReader::read_list(const Value& list, const std::string& path, Read settings) {
  Value resolved{Value::Array{}};
  resolved.origin = list.origin;
  if (!list.is_array()) {
    problems_.push_back(fmt::format("{}expected [[{}]], a list of tables, found {}", place(list.origin), path,
                                    list.description()));
    return resolved;
  }
  for (const Value& element : list.array()) {
    resolved.array().push_back(
        read(element, path, false, [&](const Options& options) { settings(element, options); }));
  }
  return resolved;
}

Value CoreReader::run(const Value& table) {
  return read(table, "run", false, [&](const Options& options) {
    RunSettings& run = settings_.run;
    if (options.has("name")) run.name = std::string(options.text("name"));
    if (run.name && !is_safe_name(*run.name)) {
      problems_.push_back(fmt::format(
          "{}[run] name = '{}' is no folder below runs/: expected a name, or several joined by "
          "'/', none of them empty, '.', '..', 'latest' or with control characters; --run-dir takes any "
          "folder",
          place(table.find("name")->origin), *run.name));
    }
    const auto seed = [&](std::string_view name) {
      return static_cast<std::uint64_t>(options.integer(options.has(name) ? name : "seed"));
    };
    run.seed = seed("seed");
    run.seed_init = seed("seed_init");
    run.seed_order = seed("seed_order");
    run.seed_rounding = seed("seed_rounding");
    run.steps = options.integer("steps");
    run.max_samples = optional_integer(options, "max_samples");
    run.max_tokens = optional_integer(options, "max_tokens");
    run.max_bytes = optional_integer(options, "max_bytes");
    run.max_seconds = optional_real(options, "max_seconds");
    run.eval_every = options.integer("eval_every");
    run.eval_batches = options.integer("eval_batches");
    run.evaluate_first = options.boolean("evaluate_first");
    run.evaluate_on_stop = options.boolean("evaluate_on_stop");
    run.log_every = options.integer("log_every");
    run.accumulate = options.integer("accumulate");
    run.clip = options.real("clip");
    run.stop_on_nan = options.text("on_nan") == "stop";
    run.deadline = options.real("deadline");
    run.witness_every = options.integer("witness_every");
    for (const std::string_view pattern : options.texts("witness_layers"))
      run.witness_layers.emplace_back(pattern);
  });
}

Value CoreReader::init(const Value& table) {
  return read(table, "init", false, [&](const Options& options) {
    InitSettings init;
    init.from = std::string(options.text("from"));
    init.step = optional_integer(options, "step");
    init.what = options.choice("what", kInitWhat);
    init.draw_missing = options.choice("missing", kMissing);
    init.drop_extra = options.choice("extra", kExtra);
    init.origin = table.origin;
    for (const std::string_view rule : options.texts("rename")) {
      const std::size_t equals = rule.find('=');
      const auto stars = [](std::string_view side) { return std::count(side.begin(), side.end(), '*'); };
      const std::string_view there = rule.substr(0, equals);
      const std::string_view here = equals == std::string::npos ? "" : rule.substr(equals + 1);
      if (there.empty() || here.empty() || stars(there) > 1 || stars(here) != stars(there))
        problems_.push_back(
            fmt::format("{}[init] rename = '{}': expected \"THERE=HERE\", with no * or with one "
                        "on each side",
                        place(table.origin), printable(rule)));
      init.rename.emplace_back(rule);
    }
    for (const std::string_view pattern : options.texts("frozen")) init.frozen.emplace_back(pattern);
    const bool edits = !init.rename.empty() || init.draw_missing || init.drop_extra;
    if (init.what == InitSettings::What::kEverything && edits)
      problems_.push_back(
          fmt::format("{}[init] what = \"everything\": a fork is the run that it comes from; rename, missing "
                      "and extra have no place there. Begin with what = \"weights\" to change the model",
                      place(table.origin)));
    settings_.init = std::move(init);
  });
}

Value CoreReader::evaluate(const Value& table) {
  return read(table, "evaluate", false, [&](const Options& options) {
    EvaluateSettings entry{std::string(options.text("name")), optional_integer(options, "every"),
                           table.origin};
    const Origin& origin = table.find("name")->origin;
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             c == '-';
    };
    if (entry.name.empty() || !std::ranges::all_of(entry.name, allowed)) {
      problems_.push_back(
          fmt::format("{}[[evaluate]] name = '{}': expected letters, digits, '_' and '-', which make the "
                      "metric val.NAME/loss",
                      place(origin), printable(entry.name)));
    }
    for (const EvaluateSettings& other : settings_.evaluate) {
      if (other.name == entry.name)
        problems_.push_back(
            fmt::format("{}[[evaluate]] name = '{}' is that of the entry at {}, too; expected "
                        "another one for each",
                        place(origin), printable(entry.name), other.origin.text()));
    }
    settings_.evaluate.push_back(std::move(entry));
  });
}

Value CoreReader::tables(const Value& table) {
  return read(table, "tables", false, [&](const Options& options) {
    TableSettings& tables = settings_.tables;
    tables.prefetch = options.integer("prefetch");
    tables.plan = options.text("plan") == "auto";
    if (options.has("accesses")) tables.accesses = options.text("accesses");
    tables.power_law = options.real("power_law");
  });
}

Value CoreReader::table_place(const Value& table) {
  return read(table, "tables.place", false, [&](const Options& options) {
    settings_.tables.places.push_back(
        {std::string(options.text("match")), table.find("state") != nullptr, table.origin});
  });
}

Value CoreReader::table_budget(const Value& table) {
  return read(table, "tables.budget", false, [&](const Options& options) {
    try {
      settings_.tables.budgets.push_back({options.bytes("bytes"), table.origin});
    } catch (const Error& error) {
      problems_.push_back(place(table.find("bytes")->origin) + "[[tables.budget]] " + error.what());
    }
  });
}

Value CoreReader::parallel(const Value& table) {
  return read(table, "parallel", false, [&](const Options& options) {
    ParallelSettings& parallel = settings_.parallel;
    parallel.ranks = options.integer("ranks");
    const auto grid = options.integers("grid");
    for (const std::int64_t extent : grid) parallel.grid.push_back(static_cast<int>(extent));
    parallel.workers = options.integer("workers");
    parallel.servers = options.integer("servers");
    parallel.rows_on_request = options.text("rows") == "request";
    double world = static_cast<double>(parallel.ranks);
    for (const int extent : parallel.grid) world *= extent;
    if (parallel.workers > 1 && world > static_cast<double>(parallel.ranks)) {
      problems_.push_back(
          fmt::format("{}parallel.workers = {}: ranks of a mesh send each other values in every forward, and "
                      "workers beside each "
                      "other would send them in different orders; set it to 1, or leave out parallel.grid",
                      place(table.find("workers")->origin), parallel.workers));
    }
    constexpr double kMostRanks = 1 << 20;
    if (world + static_cast<double>(parallel.servers) <= kMostRanks) return;
    problems_.push_back(fmt::format(
        "{}[parallel] asks for {:.6g} ranks (ranks x grid) and {} servers; expected at most {} together",
        place(table.origin), world, parallel.servers, kMostRanks));
    parallel.ranks = 1;
    parallel.grid.clear();
  });
}

Value CoreReader::device(const Value& table) {
  return read(table, "device", true, [&](const Options& options) {
    settings_.device = {options.integer("threads"), std::string(options.text("kernels"))};
  });
}

Value CoreReader::sync(const Value& table) {
  return read(table, "sync", true,
              [&](const Options& options) { settings_.buffers = options.choice("buffers", kBuffers); });
}

Value CoreReader::recovery(const Value& table) {
  return read(table, "recovery", true, [&](const Options& options) {
    settings_.recovery = {options.integer("fallbacks"), options.boolean("canary")};
  });
}

Value CoreReader::power(const Value& table) {
  return read(table, "power", false,
              [&](const Options& options) { settings_.power.rate_hz = options.real("rate_hz"); });
}

Value CoreReader::transport(const Value& table) {
  TransportSettings& transport = settings_.transport;
  Value resolved = read(table, "transport", true, [](const Options&) {});
  if (const Member* link = table.find_member("link")) {
    resolved.set("link",
                 read(link->value, "transport.link", false,
                      [&](const Options& options) {
                        transport.link = LinkSettings{options.real("bandwidth"), options.real("latency"),
                                                      options.real("jitter")};
                      }),
                 link->origin);
  }
  const Member* clock = table.find_member("clock");
  const Value none;
  resolved.set("clock",
               read(clock != nullptr ? clock->value : none, "transport.clock", false,
                    [&](const Options& options) { clock_costs(clock, options); }),
               clock != nullptr ? clock->origin : table.origin);
  if (const Member* stragglers = table.find_member("straggler")) {
    resolved.set(
        "straggler",
        read_list(stragglers->value, "transport.straggler",
                  [&](const Value& element, const Options& options) { straggler(element, options); }),
        stragglers->origin);
  }
  return resolved;
}

void CoreReader::clock_costs(const Member* table, const Options& options) {
  CostSettings& clock = settings_.transport.costs;
  settings_.transport.simulated_clock = options.text("type") == "simulated";
  clock.compute_seconds = optional_real(options, "compute_seconds");
  clock.backward_share = options.real("backward_share");
  clock.optimizer_seconds = options.real("optimizer_seconds");
  clock.mix_seconds = options.real("mix_seconds");
  clock.calibrate = options.boolean("calibrate");
  const auto speed = options.reals("speed");
  clock.speed.assign(speed.begin(), speed.end());
  const auto refuse = [&](const std::string& text) {
    problems_.push_back(place(table != nullptr ? table->origin : Origin()) + text);
  };
  const std::size_t trainers = settings_.parallel.trainers();
  if (!clock.speed.empty() && clock.speed.size() != trainers) {
    refuse(fmt::format("transport.clock.speed has {} numbers, but {} ranks train; give one for each",
                       clock.speed.size(), trainers));
  }
  for (const double rank_speed : clock.speed) {
    if (!(rank_speed > 0)) refuse(fmt::format("transport.clock.speed: {} is not above 0", rank_speed));
  }
  if (clock.calibrate && clock.compute_seconds)
    refuse("transport.clock: compute_seconds and calibrate exclude each other; keep one");
  if (clock.calibrate && settings_.parallel.workers > 1)
    refuse(
        "transport.clock.calibrate: several workers of a replica run beside each other; give "
        "compute_seconds");
}

void CoreReader::straggler(const Value& table, const Options& options) {
  StragglerSettings straggler;
  const auto ranks = options.integers("ranks");
  straggler.ranks.assign(ranks.begin(), ranks.end());
  straggler.kind = options.choice("kind", kStragglers);
  straggler.factor = options.real("factor");
  straggler.mean = options.real("mean");
  straggler.step = options.integer("step");
  straggler.seconds = options.real("seconds");
  const std::int64_t world = settings_.parallel.world();
  for (const std::int64_t rank : straggler.ranks) {
    if (rank < world) continue;
    problems_.push_back(
        fmt::format("{}[[transport.straggler]] names rank {}, but the world has {} ranks (counted from 0)",
                    place(table.find("ranks")->origin), rank, world));
  }
  const bool link = straggler.kind == StragglerSettings::Kind::kLink;
  for (const std::int64_t rank : straggler.ranks) {
    if (link || rank < settings_.parallel.trainers() || rank >= world) continue;
    problems_.push_back(fmt::format(
        "{}[[transport.straggler]]: rank {} is a server, whose computing takes no time; it can have a "
        "slow link",
        place(table.find("ranks")->origin), rank));
  }
  if (link && !settings_.transport.link) {
    problems_.push_back(fmt::format(
        "{}[[transport.straggler]]: a slow link needs transport.link with a bandwidth to keep a share of",
        place(table.origin)));
  }
  if (straggler.kind == StragglerSettings::Kind::kFactor && straggler.factor < 1) {
    problems_.push_back(fmt::format(
        "{}[[transport.straggler]]: a straggler takes at least as long as others, expected a factor of "
        "1 or more, found {}; a rank that is faster has a transport.clock.speed",
        place(table.origin), straggler.factor));
  }
  if (link && straggler.factor > 1) {
    problems_.push_back(fmt::format(
        "{}[[transport.straggler]]: a slow link keeps a share of its bandwidth, at most 1; found {}",
        place(table.origin), straggler.factor));
  }
  settings_.transport.stragglers.push_back(std::move(straggler));
}

Value CoreReader::plugins(const Value& table) {
  return resolve(table, "plugins", false).table;
}

Value CoreReader::faults(const Value& list) {
  return read_list(list, "fault",
                   [&](const Value& element, const Options& options) { fault(element, options); });
}

void CoreReader::fault(const Value& table, const Options& options) {
  FaultSettings& fault = settings_.faults.emplace_back();
  fault.rank = options.integer("rank");
  fault.step = options.integer("step");
  fault.kind = options.choice("kind", kFaults);
  fault.phase = options.choice("phase", kFaultPhases);
  fault.seconds = options.real("seconds");
  fault.peer = optional_integer(options, "peer");
  fault.bit = optional_integer(options, "bit").value_or(0);
  fault.origin = table.origin;
  if (options.has("what")) fault.what = options.choice("what", kFlipped);
  if (options.has("tensor")) fault.tensor = std::string(options.text("tensor"));
  const bool flips = fault.kind == FaultSettings::Kind::kFlip;
  for (const char* name : {"what", "tensor", "bit"}) {
    if (options.has(name) && !flips)
      problems_.push_back(
          fmt::format("{}[[fault]] {} is about kind = \"flip\"; leave it out, or change the kind",
                      place(table.find(name)->origin), name));
  }
  if (flips && (!options.has("what") || fault.tensor.empty()))
    problems_.push_back(
        fmt::format("{}[[fault]] kind = \"flip\" needs what = \"output\", \"gradient\", "
                    "\"weight\" or \"state\", and tensor, a name",
                    place(table.origin)));
  const std::int64_t world = settings_.parallel.world(), trainers = settings_.parallel.trainers();
  if (options.integer("rank") >= trainers && options.integer("rank") < world) {
    problems_.push_back(
        fmt::format("{}[[fault]]: rank {} is a server; faults happen to ranks that train, 0 to {}",
                    place(table.find("rank")->origin), options.integer("rank"), trainers - 1));
  }
  for (const char* name : {"rank", "peer"}) {
    if (options.has(name) && options.integer(name) >= world) {
      problems_.push_back(
          fmt::format("{}[[fault]] names rank {}, but the world has {} ranks (counted from 0)",
                      place(table.find(name)->origin), options.integer(name), world));
    }
  }
}

Value CoreReader::emulate(const Value& table) {
  EmulateSettings emulated;
  Value resolved = read(table, "emulate", false, [&](const Options& options) {
    emulated.hours = options.real("hours");
    emulated.domains = {static_cast<int>(options.integer("shards")), true};
    FailureLaw& law = emulated.law;
    law.hours = emulated.hours;
    law.shards = emulated.domains.shards;
    law.lost = static_cast<int>(options.integer("lost"));
    law.at_least = static_cast<int>(options.integer("at_least"));
    law.seed = options.has("seed") ? static_cast<std::uint64_t>(options.integer("seed")) : settings_.run.seed;
    const double mtbf = optional_real(options, "mtbf_hours").value_or(0);
    const std::string_view kind = options.text("law");
    if (kind != "none") law.mean_hours = mtbf;
    if (kind == "gamma") law.shape = options.real("shape");
    if (kind != "none" && mtbf == 0)
      problems_.push_back(
          fmt::format("{}[emulate] law = \"{}\" needs mtbf_hours", place(table.origin), kind));
    if (kind == "none" && law.at_least > 0)
      problems_.push_back(place(table.origin) + "[emulate] at_least needs a law, e.g. law = \"exponential\"");
    if (law.lost > law.shards) {
      problems_.push_back(fmt::format("{}[emulate] lost = {} of {} shards; expected at most all of them",
                                      place(table.origin), law.lost, law.shards));
    }
    constexpr double kMinute = 60, kHour = 3600;
    emulated.costs = {options.real("save_minutes") * kMinute, options.real("load_minutes") * kMinute,
                      options.real("restart_minutes") * kMinute, mtbf * kHour};
  });
  if (const Member* failures = table.find_member("failure")) {
    resolved.set("failure",
                 read_list(failures->value, "emulate.failure",
                           [&](const Value& element, const Options& options) {
                             emulated.scripted.push_back(emulated_failure(element, options, emulated));
                           }),
                 failures->origin);
  }
  std::stable_sort(emulated.scripted.begin(), emulated.scripted.end(),
                   [](const EmulatedFailure& a, const EmulatedFailure& b) { return a.hour < b.hour; });
  settings_.emulate = std::move(emulated);
  return resolved;
}

EmulatedFailure CoreReader::emulated_failure(const Value& table, const Options& options,
                                             const EmulateSettings& emulated) {
  EmulatedFailure failure{options.real("hour"), {}};
  for (const std::int64_t shard : options.integers("shards")) {
    failure.shards.push_back(static_cast<int>(std::min<std::int64_t>(shard, 1 << 20)));
    if (shard >= emulated.domains.shards) {
      problems_.push_back(
          fmt::format("{}[[emulate.failure]] names shard {}, but the cluster has {} (counted from 0)",
                      place(table.find("shards")->origin), shard, emulated.domains.shards));
    }
  }
  std::sort(failure.shards.begin(), failure.shards.end());
  failure.shards.erase(std::unique(failure.shards.begin(), failure.shards.end()), failure.shards.end());
  if (failure.shards.empty())
    problems_.push_back(place(table.find("shards")->origin) + "[[emulate.failure]] names no shard");
  if (failure.hour >= emulated.hours) {
    problems_.push_back(fmt::format("{}[[emulate.failure]] at hour {:g}, but the job ends after {:g}",
                                    place(table.find("hour")->origin), failure.hour, emulated.hours));
  }
  return failure;
}

void CoreReader::model_edit(const Value& table, const std::string& path) {
  resolve(table, path, path != "model.remove");
}

}  // namespace config
TENON_ABI_END
