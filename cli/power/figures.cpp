// Drawings of a simulation; see figures.hpp. Long traces are drawn by the lowest and highest value of each
// column of pixels, so that no swing is lost.
#include "power/figures.hpp"

#include "ab/ab.hpp"
#include "ab/plot.hpp"
#include "ab/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tenon::power {
namespace {

using ab::Anchor;
using ab::Frame;
using ab::Point;
using ab::Svg;

constexpr double kWidth = 860, kTop = 76, kPanel = 280, kMargin = 0.06;
constexpr std::size_t kColumns = 700;
constexpr double kWindow_s = 12;

struct Curve {
  std::string name, style;
};

struct Panel {
  double height = kPanel;
  std::string content;
};

/// A file of its own: title, caption, legend, panels.
std::string standing_alone(const std::string& title, const std::string& caption,
                           const std::vector<Curve>& curves, const std::vector<Panel>& panels) {
  Svg top(kWidth, kTop, "chart", "");
  top.text({16, 22}, title, "title", Anchor::kStart);
  top.text({16, 42}, caption, "tick", Anchor::kStart);
  double x = 16;
  for (const Curve& curve : curves) {
    if (!curve.style.starts_with("arm") || curve.style.find(' ') != std::string::npos) {
      top.rect({x, 56}, 26, 11, curve.style);
    } else {
      const Point stroke[] = {{x, 62}, {x + 26, 62}};
      top.polyline(stroke, "curve " + curve.style, "");
    }
    top.text({x + 33, 66}, curve.name, "label", Anchor::kStart);
    x += 33 + 7.2 * static_cast<double>(curve.name.size()) + 22;
  }
  double height = kTop;
  std::string drawing =
      fmt::format("<svg width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", kWidth, kTop, top.take());
  for (const Panel& panel : panels) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", height, kWidth,
                           panel.height, panel.content);
    height += panel.height;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\" "
             "role=\"img\" "
             "aria-label=\"{2}\">\n<style>{3}\n.page{{fill:var(--page)}}.title{{fill:var(--ink);font-size:"
             "15px;"
             "font-weight:600}}svg .curve{{stroke-width:1.4}}svg .area{{stroke:none;opacity:.3}}svg "
             ".bar{{fill:var(--c)}}"
             "svg .critical{{--c:var(--ink);fill:var(--ink);opacity:.1}}"
             "svg .limit{{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:5 4}}"
             "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
             kWidth, height, ab::escape_html(title), ab::kReportStyle) +
         drawing + "</svg>\n";
}

/// Samples of the window of a figure: some seconds in the middle of the job, and all of a short trace.
struct Part {
  std::size_t begin = 0, end = 0;
  double rate_hz = 1;
  double seconds(std::size_t i) const { return static_cast<double>(i) / rate_hz; }
};

Part part_of(const SimulationResult& result, std::size_t size, bool from_start) {
  const double rate = result.stages.front().trace.rate_hz;
  const auto length = static_cast<std::size_t>(kWindow_s * rate);
  if (size <= length) return {0, size, rate};
  const double middle = result.job_begin_s + result.job_s / 2 - kWindow_s / 2;
  const auto begin = static_cast<std::size_t>(from_start ? 0 : std::max(0.0, middle * rate));
  return {std::min(begin, size - length), std::min(begin, size - length) + length, rate};
}

std::vector<Point> points_of(const Frame& frame, const std::vector<double>& values, const Part& part,
                             double scale) {
  std::vector<Point> points;
  const std::size_t n = std::min(part.end, values.size()) - std::min(part.begin, values.size());
  const std::size_t columns = std::min(n, kColumns);
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t from = part.begin + c * n / columns, to = part.begin + (c + 1) * n / columns;
    std::size_t low = from, high = from;
    for (std::size_t i = from; i < to; ++i) {
      if (values[i] < values[low]) low = i;
      if (values[i] > values[high]) high = i;
    }
    for (const std::size_t i : {std::min(low, high), std::max(low, high)})
      if (points.empty() || low != high || i == from)
        points.push_back(frame.at(part.seconds(i), values[i] * scale));
  }
  return points;
}

struct Scale {
  double factor;
  std::string unit;
};

Scale scale_of(double most, const char* unit) {
  if (most >= 2e6) return {1e-6, std::string("M") + unit};
  if (most >= 2e3) return {1e-3, std::string("k") + unit};
  return {1, unit};
}

double highest(std::initializer_list<const std::vector<double>*> all) {
  double most = 0;
  for (const auto* values : all)
    for (const double value : *values) most = std::max(most, std::abs(value));
  return most;
}

struct Drawn {
  const std::vector<double>* values;
  std::string style;
};

/// Curves over time; `shade` draws below them.
Panel time_panel(const std::vector<Drawn>& curves, const Part& part, const Scale& scale,
                 const std::string& quantity, const std::function<void(Svg&, const Frame&)>& shade = {}) {
  std::vector<double> values{0};
  for (const Drawn& curve : curves) {
    for (std::size_t i = part.begin; i < std::min(part.end, curve.values->size()); ++i)
      values.push_back((*curve.values)[i] * scale.factor);
  }
  Svg svg(kWidth, kPanel, "chart", quantity);
  ab::Range y = ab::range_of(values, kMargin);
  if (*std::min_element(values.begin(), values.end()) >= 0) y.low = 0;
  const Frame frame(svg, {.x = {part.seconds(part.begin), part.seconds(part.end)},
                          .y = y,
                          .x_title = "time (s)",
                          .y_title = fmt::format("{} ({})", quantity, scale.unit),
                          .x_is_quantity = false,
                          .left = 84});
  if (shade) shade(svg, frame);
  for (const Drawn& curve : curves)
    svg.polyline(points_of(frame, *curve.values, part, scale.factor), "curve " + curve.style, "");
  return {kPanel, svg.take()};
}

/// The area between two curves where the first is above the second.
void shade_above(Svg& svg, const Frame& frame, const std::vector<double>& above,
                 const std::vector<double>& below, const Part& part, double scale, const std::string& style) {
  std::vector<Point> upper, lower;
  const auto flush = [&] {
    if (upper.size() > 1) svg.band(upper, lower, style + " area");
    upper.clear();
    lower.clear();
  };
  const std::size_t step = std::max<std::size_t>(1, (part.end - part.begin) / (2 * kColumns));
  const std::size_t end = std::min({part.end, above.size(), below.size()});
  for (std::size_t i = part.begin; i < end; i += step) {
    if (above[i] > below[i]) {
      upper.push_back(frame.at(part.seconds(i), above[i] * scale));
      lower.push_back(frame.at(part.seconds(i), below[i] * scale));
    } else {
      flush();
    }
  }
  flush();
}

std::string place_of(const PolicyResult& policy) {
  return policy.at_site ? "at the site" : "at one worker";
}

/// The last policy of a type, null without one.
const PolicyResult* find_policy(const SimulationResult& result, std::string_view type) {
  const PolicyResult* found = nullptr;
  for (const PolicyResult& policy : result.policies)
    if (policy.played.policy == type || policy.played.policy.ends_with("/" + std::string(type)))
      found = &policy;
  return found;
}

std::string time_figure(const Plan& plan, const SimulationResult& result) {
  const Stage &first = result.stages.front(), &last = result.stages.back();
  const Part part = part_of(result, first.trace.watts.size(), false);
  const Scale scale = scale_of(highest({&first.trace.watts}), "W");
  std::vector<Curve> legend{{"unmitigated", "arm1"}};
  std::vector<Drawn> curves{{&first.trace.watts, "arm1"}};
  if (result.stages.size() > 1) {
    legend.push_back({"after all policies", "arm0"});
    curves.push_back({&last.trace.watts, "arm0"});
  }
  return standing_alone("Power of the site over time",
                        fmt::format("modelled: {} workers, levels {}", plan.workers.count, plan.levels.name),
                        legend, {time_panel(curves, part, scale, "power")});
}

struct LogAxis {
  double low, high, from, to;
  double at(double value) const {
    const double v = std::max(value, std::pow(10.0, low));
    return from + (std::log10(v) - low) / (high - low) * (to - from);
  }
};

std::string spectrum_figure(const Plan& plan, const SimulationResult& result) {
  constexpr double kHeight = 340, kLeft = 84, kRight = kWidth - 14, kBottom = kHeight - 40, kFirst = 10;
  const double rated = plan.site_rated_watts();
  Svg svg(kWidth, kHeight, "chart", "spectrum");
  const Reading& reading = result.stages.front().reading;
  const LogAxis x{std::floor(std::log10(plan.spec.band_low_hz / 2)), std::log10(plan.rate_hz / 2), kLeft,
                  kRight};
  const LogAxis y{-6, 0, kBottom, kFirst};
  svg.rect({x.at(reading.band_low_hz), kFirst}, x.at(reading.band_high_hz) - x.at(reading.band_low_hz),
           kBottom - kFirst, "critical");
  for (int decade = -6; decade <= 0; ++decade) {
    const double at = y.at(std::pow(10.0, decade));
    svg.line({kLeft, at}, {kRight, at}, "grid");
    svg.text({kLeft - 8, at + 4}, decade == 0 ? "1" : fmt::format("{:g}", std::pow(10.0, decade)), "tick",
             Anchor::kEnd);
  }
  for (double decade = x.low; decade <= x.high; decade += 1) {
    const double at = x.at(std::pow(10.0, decade));
    svg.line({at, kBottom}, {at, kBottom + 4}, "axis");
    svg.text({at, kBottom + 17}, fmt::format("{:g}", std::pow(10.0, decade)), "tick", Anchor::kMiddle);
  }
  svg.line({kLeft, kBottom}, {kRight, kBottom}, "axis");
  svg.vertical_text({14, (kFirst + kBottom) / 2}, "amplitude (of the rated power)", "axis-title");
  svg.text({(kLeft + kRight) / 2, kHeight - 5}, "frequency (Hz)", "axis-title", Anchor::kMiddle);
  svg.text({(x.at(reading.band_low_hz) + x.at(reading.band_high_hz)) / 2, kFirst + 15},
           fmt::format("critical band, {:g} to {:g} Hz", reading.band_low_hz, reading.band_high_hz), "tick",
           Anchor::kMiddle);
  const auto draw = [&](const Stage& stage, const std::string& style) {
    const Spectrum spectrum(stage.measured, Window::kHann);
    std::vector<double> most(kColumns, 0.0);
    for (std::size_t k = 1; k < spectrum.bins(); ++k) {
      const double share = (std::log10(spectrum.hz(k)) - x.low) / (x.high - x.low);
      if (share < 0 || share >= 1) continue;
      double& column = most[static_cast<std::size_t>(share * kColumns)];
      column = std::max(column, spectrum.amplitude(k) / rated);
    }
    std::vector<Point> points;
    for (std::size_t c = 0; c < kColumns; ++c)
      if (most[c] > 0)
        points.push_back(
            {kLeft + (static_cast<double>(c) + 0.5) / kColumns * (kRight - kLeft), y.at(most[c])});
    svg.polyline(points, "curve " + style, stage.name);
  };
  draw(result.stages.front(), "arm1");
  std::vector<Curve> legend{{"unmitigated", "arm1"}};
  if (result.stages.size() > 1) {
    draw(result.stages.back(), "arm0");
    legend.push_back({"after all policies", "arm0"});
  }
  legend.push_back({"critical band", "critical area"});
  return standing_alone(
      "Spectrum of the site's power",
      fmt::format("modelled; lines of the unmitigated trace: highest at {:.3g} Hz; band share {:.3g} % "
                  "before, {:.3g} % after",
                  reading.peak_hz, 100 * reading.band_share, 100 * result.stages.back().reading.band_share),
      legend, {{kHeight, svg.take()}});
}

std::string filler_figure(const SimulationResult& result, const PolicyResult& policy) {
  const Played& p = policy.played;
  const Part part = part_of(result, p.in.size(), false);
  const Scale scale = scale_of(highest({&p.in, &p.out}), "W");
  return standing_alone("Filler off and on, " + place_of(policy),
                        "modelled; the shaded energy is the filler's",
                        {{"filler off", "arm1"}, {"filler on", "arm0"}, {"filler", "arm2 area"}},
                        {time_panel({{&p.out, "arm0"}, {&p.in, "arm1"}}, part, scale, "power",
                                    [&](Svg& svg, const Frame& frame) {
                                      shade_above(svg, frame, p.out, p.in, part, scale.factor, "arm2");
                                    })});
}

std::string floor_figure(const SimulationResult& result, const PolicyResult& policy) {
  const Played& p = policy.played;
  const Part part = part_of(result, p.in.size(), true);
  const Scale scale = scale_of(highest({&p.in, &p.out}), "W");
  return standing_alone("Floor and ramps, " + place_of(policy),
                        fmt::format("modelled; burnt {:.4g} kJ, withheld {:.4g} kJ over the whole trace",
                                    p.burnt_j / 1e3, p.withheld_j / 1e3),
                        {{"load", "arm1"},
                         {"after floor and ramps", "arm0"},
                         {"burnt", "arm2 area"},
                         {"throttled", "arm3 area"}},
                        {time_panel({{&p.in, "arm1"}, {&p.out, "arm0"}}, part, scale, "power",
                                    [&](Svg& svg, const Frame& frame) {
                                      shade_above(svg, frame, p.out, p.in, part, scale.factor, "arm2");
                                      shade_above(svg, frame, p.in, p.out, part, scale.factor, "arm3");
                                    })});
}

std::string storage_figure(const SimulationResult& result, const PolicyResult& policy) {
  const Played& p = policy.played;
  const Part part = part_of(result, p.in.size(), false);
  std::vector<double> battery(p.in.size());
  for (std::size_t i = 0; i < battery.size(); ++i) battery[i] = p.in[i] - p.out[i];
  const Scale scale = scale_of(highest({&p.in}), "W"), charge = scale_of(highest({&p.charge_j}), "J");
  return standing_alone(
      "Storage " + place_of(policy),
      fmt::format(
          "modelled; the storage was at a limit in {:.3g} % of the samples",
          p.out.empty() ? 0 : 100.0 * static_cast<double>(p.violations) / static_cast<double>(p.out.size())),
      {{"load", "arm1"}, {"grid", "arm0"}, {"given by the storage", "arm2"}, {"charge", "arm3"}},
      {time_panel({{&p.in, "arm1"}, {&battery, "arm2"}, {&p.out, "arm0"}}, part, scale, "power"),
       time_panel({{&p.charge_j, "arm3"}}, part, charge, "charge")});
}

std::string stack_figure(const Plan& plan, const SimulationResult& result) {
  constexpr double kRow = 22, kLeft = 230, kRight = kWidth - 160, kMost = 4;
  const auto x = [&](double share) { return kLeft + std::min(share, kMost) / kMost * (kRight - kLeft); };
  const std::size_t parts = result.stages.front().reading.verdict.size(), stages = result.stages.size();
  const double group = kRow * static_cast<double>(stages) + 34;
  const double height = group * static_cast<double>(parts) + 30;
  Svg svg(kWidth, height, "chart", "against the specification");
  for (std::size_t part = 0; part < parts; ++part) {
    const double top = group * static_cast<double>(part) + 18;
    const VerdictPart& limit = result.stages.front().reading.verdict[part];
    svg.text({16, top}, fmt::format("{}, limit {:g} {}", limit.name, limit.limit, limit.unit), "label",
             Anchor::kStart);
    for (std::size_t s = 0; s < stages; ++s) {
      const VerdictPart& value = result.stages[s].reading.verdict[part];
      const double y = top + 10 + kRow * static_cast<double>(s);
      const double share = value.limit > 0 ? value.value / value.limit : value.value > 0 ? kMost : 0;
      svg.text({kLeft - 8, y + 12}, result.stages[s].name, "tick", Anchor::kEnd);
      if (std::isfinite(share))
        svg.rect({kLeft, y}, x(share) - kLeft, kRow - 7, value.passes ? "arm0 bar" : "arm1 bar");
      // Beside the bar, but not on the line of the limit.
      const double bar = x(std::isfinite(share) ? share : 0);
      svg.text({(bar < x(1) && bar + 64 > x(1) ? x(1) : bar) + 6, y + 12},
               std::isfinite(share)
                   ? fmt::format("{:.3g}{}", value.value, share > kMost ? " (bar shortened)" : "")
                   : "not measured",
               "tick", Anchor::kStart);
    }
  }
  svg.line({x(1), 6}, {x(1), height - 26}, "limit");
  svg.text({x(1), height - 10}, "limit", "tick", Anchor::kMiddle);
  return standing_alone("The stack against " + plan.spec.name,
                        "modelled; bars in units of the limit of each part",
                        {{"passes", "arm0 bar"}, {"fails", "arm1 bar"}}, {{height, svg.take()}});
}

}  // namespace

std::vector<std::pair<std::string, std::string>> figures(const Plan& plan, const SimulationResult& result) {
  std::vector<std::pair<std::string, std::string>> all;
  all.emplace_back("time.svg", time_figure(plan, result));
  all.emplace_back("spectrum.svg", spectrum_figure(plan, result));
  if (const PolicyResult* filler = find_policy(result, "filler"))
    all.emplace_back("filler.svg", filler_figure(result, *filler));
  if (const PolicyResult* floor = find_policy(result, "floor_ramp"))
    all.emplace_back("floor.svg", floor_figure(result, *floor));
  for (const PolicyResult& policy : result.policies) {
    if (policy.played.charge_j.empty()) continue;
    all.emplace_back("storage.svg", storage_figure(result, policy));
    break;
  }
  all.emplace_back("stack.svg", stack_figure(plan, result));
  return all;
}

}  // namespace tenon::power
