// The life of a study of sites; see sites.hpp.
#include "reproduce/sites.hpp"

#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "ab/svg.hpp"
#include "base/elapsed.hpp"
#include "base/json_writer.hpp"
#include "base/process_facts.hpp"
#include "record/build_info.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kSitesOptions[] = {
    option::real("tolerance", "0.005")
        .between(0, 1)
        .doc_text("largest relative difference of an energy to its closed form, for loads that jump"),
};

constexpr OptionSpec kSiteArmOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("of which the following holds"),
    option::real("step_jitter", "0")
        .between(0, 0.2)
        .doc_text("standard deviation of the length of a step, of its length, drawn for each"),
    option::boolean("closed_form", "false")
        .doc_text("the energy of its floor is compared with (1 - d)(floor - low) / mean"),
    option::boolean("limits", "true").doc_text("it is compared with the limits, and drawn"),
    option::text("expected", "''").doc_text("figures to show beside its own"),
};

}  // namespace

std::vector<config::TableSpecs> Sites::file_tables() const {
  return {{"sites", kSitesOptions}, {"sites.arm", kSiteArmOptions, true}};
}

void Sites::read(const Value& table) {
  OptionRequest request{.table = table, .owner = "sites", .specs = option_list(kSitesOptions)};
  request.other_keys = {"arm"};
  tolerance = resolve_options(request).options->real("tolerance");
  const Value* list = table.find("arm");
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
    const Resolution one = resolve_options({.table = list->array()[i],
                                            .owner = fmt::format("sites.arm[{}]", i),
                                            .specs = option_list(kSiteArmOptions)});
    const tenon::Options& options = *one.options;
    cases.push_back({std::string(options.text("arm")), options.real("step_jitter"),
                     options.boolean("closed_form"), options.boolean("limits"),
                     std::string(options.text("expected"))});
  }
}

SiteCase Sites::of(const std::string& arm) const {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const SiteCase& one) { return one.arm == arm; });
  return found == cases.end() ? SiteCase{.arm = arm, .expected = ""} : *found;
}

void Sites::check(const StudyFile& study, Problems& problems) const {
  problems.alone(*this);
  std::set<std::string> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string key = fmt::format("sites.arm[{}].arm", i);
    problems.arm_named(key, cases[i].arm);
    if (!names.insert(cases[i].arm).second)
      problems.say(key, fmt::format("arm '{}' has an entry already", cases[i].arm));
  }
  for (const Size& size : study.sizes) {
    if (size.steps != 0)
      problems.say(fmt::format("size.{}.steps", size.name),
                   "a site has phases and no steps; say set = [\"power.repeat=N\"]");
  }
}

std::string Sites::size_text(const StudyFile& study, const Size& size) const {
  return fmt::format("{} sites x {} seed{}", study.arms.size(), size.seeds.size(),
                     size.seeds.size() == 1 ? "" : "s");
}

// Simulations.

FloorForm floor_form(const power::Plan& plan) {
  const auto refuse = [&](const std::string& found) {
    fail_config(fmt::format(
        "{}: the closed form of a floor needs a load of two levels, 1 and one below, and one policy "
        "floor_ramp between them; found {}",
        plan.where, found));
  };
  if (plan.policies.size() != 1 || plan.policies[0].type != "floor_ramp")
    refuse(fmt::format("{} policies", plan.policies.size()));
  FloorForm form{.floor = plan.policies[0].options->real("floor")};
  std::set<double> levels;
  double high_s = 0, all_s = 0;
  for (const power::Phase& phase : plan.logs.front().phases) {
    const power::Level& level = plan.levels.of(phase.name);
    const double share = level.share, seconds = phase.end_s - phase.begin_s;
    form.at_once = form.at_once && level.rise_s == 0 && level.fall_s == 0;
    levels.insert(share);
    all_s += seconds;
    if (share == 1) high_s += seconds;
  }
  if (levels.size() != 2 || *levels.rbegin() != 1)
    refuse(fmt::format("{} levels up to {:g}", levels.size(), *levels.rbegin()));
  form.low = *levels.begin();
  form.duty = high_s / all_s;
  if (form.floor < form.low) refuse(fmt::format("a floor of {:g} below {:g}", form.floor, form.low));
  return form;
}

void draw_steps(power::Plan& plan, double deviation, std::uint64_t seed) {
  constexpr double kRounding_s = 1e-9, kShortest = 0.1;
  power::PhaseLog& log = plan.logs.front();
  if (log.source != "script")
    fail_config(
        fmt::format("{}: lengths of steps are drawn for [[power.phase]], and the phases are those of {}",
                    plan.where, log.source));
  // Between two repetitions rounding may have left an idle instant.
  std::erase_if(log.phases,
                [](const power::Phase& phase) { return phase.end_s - phase.begin_s < kRounding_s; });
  const std::size_t of_step = log.phases.size() / static_cast<std::size_t>(plan.repeat);
  const RandomKey key = random_key(seed, "power.step");
  double at = 0;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    power::Phase& phase = log.phases[i];
    const double factor = std::max(kShortest, 1 + deviation * random_normal(key, i / of_step, 0));
    const double seconds = (phase.end_s - phase.begin_s) * factor;
    phase.begin_s = at;
    phase.end_s = at += seconds;
  }
}

double SiteArm::mean(double SiteRun::*value) const {
  double sum = 0;
  for (const SiteRun& run : runs) sum += run.*value;
  return sum / static_cast<double>(runs.size());
}

bool SiteArm::misses_form(double tolerance) const {
  return form && form->at_once && std::abs(off_form()) > tolerance;
}

double SiteArm::mean_of_part(std::size_t part) const {
  double sum = 0;
  for (const SiteRun& run : runs) sum += run.reading.verdict[part].value;
  return sum / static_cast<double>(runs.size());
}

power::Trace shown_part(const power::Trace& trace, double rated_watts) {
  const auto length = std::min(trace.watts.size(), static_cast<std::size_t>(kShownSeconds * trace.rate_hz));
  power::Trace part{trace.rate_hz,
                    {trace.watts.end() - static_cast<std::ptrdiff_t>(length), trace.watts.end()}};
  for (double& watts : part.watts) watts /= rated_watts;
  return part;
}

void add_this_process(Provenance& out) {
  const BuildInfo build = build_info();
  out.program = {fmt::format("{} ({}{})", build.version, build.git, build.git_dirty ? ", changed" : "")};
  out.machines = {fmt::format("{}, {} cores", cpu_model(), usable_cores())};
  out.ended = utc_now();
  if (out.begun.empty()) out.begun = out.ended;
}

Outcome Sites::run(const StudyFile& study, const Size& size, const Request& request,
                   ab::RunnerOptions runner) const {
  runner.resolve = {};  // arms are sites, whose paths are those of their own keys
  const base::Steady::time_point begun = base::Steady::now();
  const ab::Experiment experiment = experiment_of(study, size);
  ab::write_arm_files(experiment, runner);
  Outcome out;
  StudyResult& result = out.result;
  result.study = study;
  result.size = size;
  result.complete = true;
  add_this_process(result.provenance);
  auto numbers = std::make_shared<SitesResult>();
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    const SiteCase site = of(study.arms[a].arm.name);
    SiteArm& arm = numbers->arms.emplace_back();
    arm.arm = a;
    for (const std::int64_t seed : size.seeds) {
      std::vector<std::string> sets = experiment.arms[a].set;
      sets.push_back(fmt::format("power.workers.seed={}", seed));
      try {
        const power::SimulatedSite one = request.simulate_site(
            ab::arm_file_path(runner.folder, experiment.arms[a]), sets, [&](power::Plan& plan) {
              if (site.step_jitter > 0) draw_steps(plan, site.step_jitter, static_cast<std::uint64_t>(seed));
              if (site.closed_form) arm.form = floor_form(plan);
            });
        const power::Stage &first = one.result.stages.front(), &last = one.result.stages.back();
        const double rated = one.plan.site_rated_watts();
        arm.runs.push_back({seed, last.reading, rated, 100 * (last.energy_j / first.energy_j - 1),
                            100 * one.result.delay_s / one.result.job_s});
        if (arm.shown.watts.empty()) arm.shown = shown_part(last.measured, rated);
        numbers->spec = one.plan.spec;
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("tenon reproduce: {} at size {}: arm '{}': {}", study.name,
                                              size.name, study.arms[a].arm.name, error.what()));
      }
      ++out.started;
    }
    if (arm.misses_form(tolerance)) {
      result.complete = false;
      result.warnings.push_back(fmt::format("{}: {:.4f} % of energy, by closed form {:.4f} %",
                                            study.arms[a].arm.name, arm.mean(&SiteRun::energy_percent),
                                            arm.form->percent()));
    }
    if (request.progress)
      request.progress(fmt::format("reproduce: {} of {} sites simulated", a + 1, study.arms.size()), false);
  }
  if (request.progress) request.progress(fmt::format("reproduce: {} simulations", out.started), true);
  result.numbers = std::move(numbers);
  add_this_process(result.provenance);
  result.provenance.wall_s = base::seconds_since(begun);
  result.provenance.simulated = {"all but closed forms and limits"};
  return out;
}

// Tables.

namespace {

using ab::fixed;

std::string verdict_text(const SiteArm& arm) {
  const auto passed = std::count_if(arm.runs.begin(), arm.runs.end(),
                                    [](const SiteRun& run) { return run.reading.passes(); });
  if (passed == 0) return "fails";
  if (passed == static_cast<std::ptrdiff_t>(arm.runs.size())) return "passes";
  return fmt::format("{} of {} pass", passed, arm.runs.size());
}

std::string forms_table(const StudyResult& r) {
  std::string out = head({"arm", "floor", "low level", "duty", "closed form, %, computed",
                          "simulated, %, modelled", "relative difference, %"});
  bool any = false;
  for (const SiteArm& arm : r.as<SitesResult>().arms) {
    if (!arm.form) continue;
    any = true;
    out += row({r.study.arms[arm.arm].title, fixed(arm.form->floor, 2), fixed(arm.form->low, 2),
                fixed(arm.form->duty, 3), fixed(arm.form->percent(), 3),
                fixed(arm.mean(&SiteRun::energy_percent), 3), ab::fixed_signed(100 * arm.off_form(), 3)});
  }
  return any ? "### Energy of a floor: closed form and simulation\n\n" + out +
                   "\nClosed form: (1 - d)(f - low) / mean, with the high level 1, duty d and floor f. "
                   "Simulated: energy of the whole trace against that without policies. The form has loads "
                   "that jump from level to level; rise and fall times are not in it.\n\n"
             : "";
}

std::string limits_table(const StudyResult& r) {
  const SitesResult& numbers = r.as<SitesResult>();
  const Sites& kind = r.study.as<Sites>();
  const power::GridSpec& spec = numbers.spec;
  const bool expects = std::any_of(kind.cases.begin(), kind.cases.end(),
                                   [](const SiteCase& one) { return !one.expected.empty(); });
  std::vector<std::string> names{"site",          "ramp up, 1/s", "ramp down, 1/s", "range",
                                 "band share, %", "energy, %",    "job longer, %",  "limits"};
  if (expects) names.emplace_back("expected beforehand");
  std::string out = "### Against the limits, modelled\n\n" + head(names);
  std::vector<std::string> limits{fmt::format("limits: {}", spec.name),
                                  fixed(spec.ramp_up, 3),
                                  fixed(spec.ramp_down, 3),
                                  fixed(spec.range, 3),
                                  fixed(100 * spec.band_share, 1),
                                  kNoValue,
                                  kNoValue,
                                  kNoValue};
  if (expects) limits.emplace_back(kNoValue);
  out += row(limits);
  for (const SiteArm& arm : numbers.arms) {
    const SiteCase one = kind.of(r.study.arms[arm.arm].arm.name);
    if (!one.limits) continue;
    std::vector<std::string> cells{r.study.arms[arm.arm].title,
                                   fixed(arm.mean_of_part(0), 3),
                                   fixed(arm.mean_of_part(1), 3),
                                   fixed(arm.mean_of_part(2), 3),
                                   fixed(100 * arm.mean_of_part(3), 2),
                                   ab::fixed_signed(arm.mean(&SiteRun::energy_percent), 2),
                                   fixed(arm.mean(&SiteRun::longer_percent), 2),
                                   verdict_text(arm)};
    if (expects) cells.push_back(one.expected.empty() ? kNoValue : one.expected);
    out += row(cells);
  }
  return out +
         fmt::format(
             "\nAll modelled{}. Powers in rated powers of the site: ramps over {:g} s, range within {:g} "
             "s, band from {:g} to {:g} Hz as a share of the energy without policies. The limits are "
             "{}.\n",
             r.size.seeds.size() > 1 ? fmt::format(", means of {} seeds", r.size.seeds.size()) : "",
             spec.ramp_window_s, spec.range_window_s, spec.band_low_hz, spec.band_high_hz,
             spec.note.empty() ? spec.name : spec.note);
}

}  // namespace

std::string Sites::tables(const StudyResult& r) const {
  return forms_table(r) + limits_table(r);
}

std::string Sites::every_run(const StudyResult& r) const {
  std::string out = "\n## Every simulation, modelled\n\n" +
                    head({"arm", "seed", "mean, rated", "ramp up, 1/s", "ramp down, 1/s", "range",
                          "band share, %", "line, Hz", "energy, %", "job longer, %", "limits"});
  for (const SiteArm& arm : r.as<SitesResult>().arms) {
    for (const SiteRun& run : arm.runs) {
      const power::Reading& reading = run.reading;
      out += row({r.study.arms[arm.arm].arm.name, std::to_string(run.seed),
                  fixed(reading.mean / run.rated_watts, 4), fixed(reading.verdict[0].value, 4),
                  fixed(reading.verdict[1].value, 4), fixed(reading.verdict[2].value, 4),
                  fixed(100 * reading.verdict[3].value, 3), fixed(reading.peak_hz, 4),
                  ab::fixed_signed(run.energy_percent, 3), fixed(run.longer_percent, 3),
                  reading.passes() ? "passes" : "fails"});
    }
  }
  return out;
}

void Sites::json(JsonWriter& json, const StudyResult& r) const {
  json.objects("sites", r.as<SitesResult>().arms, [&](const SiteArm& arm) {
    const StudyArm& what = r.study.arms[arm.arm];
    const SiteCase one = of(what.arm.name);
    json.member("arm", what.arm.name);
    json.member("title", what.title);
    json.member("step_jitter", one.step_jitter);
    json.member("expected", one.expected);
    json.member("energy_percent_computed", arm.form ? arm.form->percent() : JsonWriter::kNull);
    json.member("energy_percent_modelled", arm.mean(&SiteRun::energy_percent));
    json.member("longer_percent_modelled", arm.mean(&SiteRun::longer_percent));
    json.member("limits", verdict_text(arm));
    json.objects("runs", arm.runs, [&](const SiteRun& run) {
      json.member("seed", run.seed);
      json.member("energy_percent_modelled", run.energy_percent);
      json.member("longer_percent_modelled", run.longer_percent);
      json.member("peak_hz_modelled", run.reading.peak_hz);
      json.member("band_rms_modelled", run.reading.band_rms / run.rated_watts);
      json.member("mean_modelled", run.reading.mean / run.rated_watts);
      json.objects("verdict_modelled", run.reading.verdict, [&](const power::VerdictPart& part) {
        json.member("name", part.name);
        json.member("value", part.value);
        json.member("limit", part.limit);
        json.member("passes", part.passes);
      });
    });
  });
  paper_values_json(json, r);
}

std::string Sites::lines(const StudyResult& r) const {
  std::string out = "  modelled:\n";
  for (const SiteArm& arm : r.as<SitesResult>().arms) {
    const StudyArm& what = r.study.arms[arm.arm];
    out += fmt::format("  {:<24}energy {} %", what.arm.name,
                       ab::fixed_signed(arm.mean(&SiteRun::energy_percent), 2));
    if (arm.form) out += fmt::format(", by closed form {} %", ab::fixed_signed(arm.form->percent(), 2));
    if (of(what.arm.name).limits)
      out +=
          fmt::format("; ramp {}, range {}, band {} %: {}", fixed(arm.mean_of_part(0), 3),
                      fixed(arm.mean_of_part(2), 3), fixed(100 * arm.mean_of_part(3), 2), verdict_text(arm));
    out += "\n";
  }
  return out;
}

// The figure.

namespace {

constexpr double kLoadsTop = 60, kLoadTitle = 22, kLoadPanel = 130;  // with loads up to 1
constexpr double kLoadFoot = 34;  // below a frame: of the last one its axis, of others nothing
constexpr std::size_t kLoadColumns = 640;
constexpr double kAboveLoad = 1.08;  // of the axis, over the highest load

/// The lowest and the highest value of each column of pixels, so that no swing is lost.
std::vector<ab::Point> load_points(const ab::Frame& frame, const power::Trace& load) {
  std::vector<ab::Point> points;
  const std::size_t n = load.watts.size(), columns = std::min(n, kLoadColumns);
  for (std::size_t c = 0; c < columns; ++c) {
    const auto from = load.watts.begin() + static_cast<std::ptrdiff_t>(c * n / columns),
               to = load.watts.begin() + static_cast<std::ptrdiff_t>((c + 1) * n / columns);
    const auto [low, high] = std::minmax_element(from, to);
    for (const auto at : {std::min(low, high), std::max(low, high)}) {
      const double seconds = static_cast<double>(at - load.watts.begin()) / load.rate_hz;
      points.push_back(frame.at(seconds, *at));
      if (low == high) break;
    }
  }
  return points;
}

/// A rated power has the same height in all figures.
double panel_height(double highest) {
  return kLoadFoot + (kLoadPanel - kLoadFoot) * highest;
}

std::string load_panel(const LoadPanel& panel, double seconds, double highest, bool last) {
  ab::Svg svg(kFigureWidth, panel_height(highest), "chart", panel.title);
  const ab::Frame frame(svg, {.x = {0, seconds},
                              .y = {0, kAboveLoad * highest},
                              .x_title = "s",
                              .y_title = "",
                              .x_is_quantity = false,
                              .draw_x = last,
                              .left = 60});
  svg.polyline(load_points(frame, panel.load), "curve arm0", panel.title);
  return svg.take();
}

}  // namespace

std::string load_figure(const StudyResult& r, const std::string& caption,
                        const std::vector<LoadPanel>& panels) {
  ab::Svg top(kFigureWidth, kLoadsTop, "chart", "");
  top.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const bool warned = !reproduce::caution(r.size).empty();
  top.text({16, 46}, warned ? reproduce::caution(r.size) : caption, warned ? "warn" : "tick",
           ab::Anchor::kStart);
  std::string drawing = "<style>svg .curve{stroke-width:1.3}</style>\n";
  double y = 0;
  const auto place = [&](double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kFigureWidth,
                           height, inner);
    y += height;
  };
  place(kLoadsTop, top.take());
  double seconds = 1, highest = 1;
  for (const LoadPanel& panel : panels) {
    seconds = std::max(seconds, panel.load.seconds());
    for (const double load : panel.load.watts) highest = std::max(highest, load);
  }
  for (const LoadPanel& panel : panels) {
    const bool last = &panel == &panels.back();
    ab::Svg title(kFigureWidth, kLoadTitle, "chart", "");
    title.text({16, kLoadTitle - 6}, panel.title, "label", ab::Anchor::kStart);
    place(kLoadTitle, title.take());
    place(panel_height(highest), load_panel(panel, seconds, highest, last));
    if (!last) y -= kLoadFoot;
  }
  return standing_alone(r, y, drawing);
}

std::string Sites::figure(const StudyResult& r) const {
  std::vector<LoadPanel> panels;
  for (const SiteArm& arm : r.as<SitesResult>().arms) {
    const StudyArm& what = r.study.arms[arm.arm];
    if (of(what.arm.name).limits)
      panels.push_back({fmt::format("{}: {}", what.title, verdict_text(arm)), arm.shown});
  }
  return load_figure(r, "power of the site over its rated power, the last 20 s, first seed; modelled",
                     panels);
}

std::shared_ptr<StudyKind> make_sites_kind() {
  return std::make_shared<Sites>();
}

}  // namespace tenon::reproduce
