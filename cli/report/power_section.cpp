// Every number says whether it was measured or modelled, and a share of a resource is never called power.
#include "report/power_section.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"
#include "power/phase_log.hpp"
#include "report/line_chart.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::report {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestPowerRecord = 1 << 20;
constexpr std::int64_t kLargestPowerTrace = std::int64_t{1} << 28;
constexpr std::size_t kMostTraces = 8;

double power_figure(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number() ? std::numeric_limits<double>::quiet_NaN()
                                                      : found->get<double>();
}

PowerRecord power_record_of(const json& object, const std::string& file) {
  PowerRecord out;
  out.file = file;
  if (const auto source = object.find("source"); source != object.end()) {
    out.source = source->value("type", "");
    out.sensor = source->value("sensor", "");
    out.origin = source->value("origin", "");
    out.unit = source->value("unit", "");
    out.ended = source->value("ended", "");
    out.rated = power_figure(*source, "rated");
    out.rate_hz = power_figure(*source, "rate_hz");
    out.rows = power_figure(*source, "rows");
    out.held_rows = power_figure(*source, "held_rows");
    out.seconds = power_figure(*source, "seconds");
    out.update_hz = power_figure(*source, "update_hz");
    out.mean = power_figure(*source, "mean");
    out.lowest = power_figure(*source, "lowest");
    out.highest = power_figure(*source, "highest");
    out.joules = power_figure(*source, "joules");
    out.counted_joules = power_figure(*source, "counted_joules");
  }
  if (const auto actuator = object.find("actuator"); actuator != object.end()) {
    out.actuator = actuator->value("type", "");
    out.actuator_ended = actuator->value("ended", "");
    const json account = actuator->value("account", json::object());
    for (const auto& [name, value] : account.items())
      if (value.is_number()) out.account.emplace_back(name, value.get<double>());
  }
  return out;
}

/// "12.3 W", "0.42"; "" where there is none.
std::string power_text(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "";
  return ab::compact(value) + (unit == "watts" ? " W" : "");
}

/// "rank 0", "rank 0 from slot 40".
std::string rank_text(const PowerRecord& record) {
  std::string name = record.file.substr(std::string_view("power.rank").size());
  if (const std::size_t slot = name.find(".slot"); slot != std::string::npos)
    name.replace(slot, 5, " from slot ");
  return "rank " + name;
}

/// Value of a share or a power, for headings: what it is and where it comes from.
std::string quantity(const PowerRecord& record) {
  return (record.unit == "watts" ? "power, " : "share busy, a proxy, ") + record.origin;
}

std::string power_traces(FileSystem& files, const std::string& attempt,
                         const std::vector<PowerRecord>& records) {
  std::string out;
  // Watts and shares have axes of their own.
  for (const char* unit : {"watts", "share"}) {
    std::vector<ab::Series> series;
    std::vector<std::string> names;
    std::string title;
    for (const PowerRecord& record : records) {
      const std::string path = attempt + "/" + record.file + ".csv";
      if (record.unit != unit || series.size() == kMostTraces || !files.exists(path)) continue;
      if (files.open(path)->size() > kLargestPowerTrace) {
        out += ab::paragraph(record.file + ".csv is too large to be drawn.", "note");
        continue;
      }
      const power::Trace trace = power::parse_power_csv(read_text(files, path, kLargestPowerTrace), path);
      ab::Series& points = series.emplace_back();
      points.reserve(trace.watts.size());
      for (std::size_t i = 0; i < trace.watts.size(); ++i) {
        ab::MetricPoint point;
        point.step = static_cast<std::int64_t>(i);
        point.value = trace.watts[i];
        point.wall_s = static_cast<double>(i) / trace.rate_hz;
        points.push_back(point);
      }
      names.push_back(rank_text(record) + ", " + quantity(record));
      title = record.unit == "watts" ? "watts" : "share busy";
    }
    if (series.empty()) continue;
    std::vector<ChartLine> lines;
    for (std::size_t i = 0; i < series.size(); ++i) lines.push_back({names[i], &series[i], i});
    ChartScale scale = scale_of(lines, ab::Axis::kSeconds);
    scale.y.low = 0;
    for (const ab::Series& points : series) {
      for (const ab::MetricPoint& point : points) scale.y.high = std::max(scale.y.high, point.value);
    }
    out += "<figure>" + line_legend(lines) +
           ab::drawing({860, 300}, {360, 240},
                       [&](ab::ChartSize size) {
                         return line_chart(lines, title, ab::Axis::kSeconds, size, scale);
                       }) +
           "</figure>\n";
  }
  return out;
}

std::string power_table(const std::vector<PowerRecord>& records) {
  const bool joules =
      std::ranges::any_of(records, [](const PowerRecord& r) { return std::isfinite(r.joules); });
  std::vector<ab::TableColumn> columns{{"rank", false}, {"sensor", false}, {"what it is", false},
                                       {"mean", true},  {"lowest", true},  {"highest", true}};
  if (joules) columns.insert(columns.end(), {{"energy", true}, {"by its counter", true}});
  columns.insert(columns.end(), {{"new values", true}, {"held", true}});
  std::vector<ab::TableRow> rows;
  for (const PowerRecord& r : records) {
    if (r.source.empty()) continue;
    ab::TableRow row{{ab::escape_html(rank_text(r)), ab::escape_html(r.sensor.empty() ? r.ended : r.sensor),
                      ab::escape_html(r.sensor.empty() ? "none" : quantity(r)), power_text(r.mean, r.unit),
                      power_text(r.lowest, r.unit), power_text(r.highest, r.unit)},
                     false};
    const auto add = [&](bool there, const std::string& text) {
      row.cells_html.push_back(there ? text : "");
    };
    if (joules) {
      add(std::isfinite(r.joules), ab::compact(r.joules) + " J");
      add(std::isfinite(r.counted_joules), ab::compact(r.counted_joules) + " J");
    }
    add(std::isfinite(r.update_hz), fmt::format("{:.3g} Hz of {:g}", r.update_hz, r.rate_hz));
    add(std::isfinite(r.held_rows) && r.rows > 0, fmt::format("{:.1f} %", 100 * r.held_rows / r.rows));
    rows.push_back(std::move(row));
  }
  return rows.empty() ? "" : ab::table(columns, rows);
}

std::string actuator_table(const std::vector<PowerRecord>& records) {
  std::vector<ab::TableRow> rows;
  for (const PowerRecord& r : records) {
    if (r.actuator.empty()) continue;
    std::string account;
    for (const auto& [name, value] : r.account)
      account +=
          fmt::format("{}{} {}", account.empty() ? "" : ", ", ab::escape_html(name), ab::compact(value));
    if (!r.actuator_ended.empty()) account = "given up: " + ab::escape_html(r.actuator_ended);
    rows.push_back({{ab::escape_html(rank_text(r)), ab::escape_html(r.actuator), account}, false});
  }
  return rows.empty() ? "" : ab::table({{"rank", false}, {"actuator", false}, {"account", false}}, rows);
}

}  // namespace

std::vector<PowerRecord> read_power(FileSystem& files, const std::string& attempt) {
  std::vector<PowerRecord> out;
  for (const DirectoryEntry& entry : files.list(attempt)) {
    const std::string& name = entry.name;
    if (entry.is_directory || !name.starts_with("power.rank") || !name.ends_with(".json")) continue;
    const std::string path = attempt + "/" + name;
    try {
      const json object = json::parse(read_text(files, path, kLargestPowerRecord));
      out.push_back(power_record_of(object, name.substr(0, name.size() - 5)));
    } catch (const json::exception& error) {
      fail_run(fmt::format("{}: not a record of power: {}; the file is damaged or was cut short", path,
                           error.what()));
    }
  }
  return out;
}

std::string power_section(FileSystem& files, const std::string& attempt) {
  const std::vector<PowerRecord> records = read_power(files, attempt);
  if (records.empty()) return "";
  std::string out;
  try {
    out += power_traces(files, attempt, records);
  } catch (const Error& error) {
    out += ab::paragraph(error.what(), "note");
  }
  out += power_table(records) + actuator_table(records);
  for (const PowerRecord& r : records) {
    if (!r.sensor.empty() && !r.ended.empty())
      out += ab::paragraph(fmt::format("{}: the source was given up: {}", r.file, r.ended), "note");
  }
  return ab::section("Power", out);
}

}  // namespace tenon::report
