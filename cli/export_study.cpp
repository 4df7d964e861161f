// tenon export-study: every line of every run below a folder as one table in long form, for other programs:
// a row per run, metric and step, with the configuration keys whose values differ.
#include "command_line.hpp"

#include "report/runs.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tenon::cli {
namespace {

using report::Run;

void declare_export_study(po::options_description& options) {
  options.add_options()("to", po::value<std::string>()->default_value("csv"), "csv | jsonl");
  options.add_options()("out", po::value<std::string>(), "FILE  write there instead of standard output");
  options.add_options()(
      "columns", po::value<std::string>(),
      "KEY,KEY...  configuration keys as columns; else all whose values differ between runs");
}

std::map<std::string, std::string> configuration_of(const Run& run) {
  std::map<std::string, std::string> values;
  for (const report::ConfigLine& line : run.config) values[line.key] = line.value;
  return values;
}

/// In the order of their names; an absent key differs from any value.
std::vector<std::string> differing_keys(const std::vector<Run>& runs) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::size_t> bearers;
  for (const Run& run : runs) {
    for (const auto& [key, value] : configuration_of(run)) {
      values[key].insert(value);
      ++bearers[key];
    }
  }
  std::vector<std::string> keys;
  for (const auto& [key, found] : values)
    if (found.size() > 1 || bearers[key] < runs.size()) keys.push_back(key);
  return keys;
}

/// A value of the configuration as text: without the quotes of TOML.
std::string without_quotes(const std::string& toml) {
  const bool quoted = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  return quoted ? toml.substr(1, toml.size() - 2) : toml;
}

/// The shortest text that reads back as the same number.
std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

/// One row: its columns' names, and what stands in them. Numbers and texts are kept apart for JSON.
struct ExportCell {
  std::string text;
  double value = 0;
  bool is_number = false;
};
using ExportRow = std::vector<ExportCell>;

class LongTable {
 public:
  LongTable(const std::vector<Run>& runs, const std::string& folder, std::vector<std::string> keys)
      : runs_(runs), folder_(folder), keys_(std::move(keys)) {}

  std::vector<std::string> columns() const {
    std::vector<std::string> names{"run",    "status",  "metric", "step",      "value",
                                   "wall_s", "samples", "tokens", "bytes_sent"};
    names.insert(names.end(), keys_.begin(), keys_.end());
    return names;
  }

  /// Calls back with every row, run by run, metric by metric.
  template <typename Write>
  void each_row(Write&& write) const {
    for (const Run& run : runs_) {
      const std::map<std::string, std::string> configuration = configuration_of(run);
      ExportRow tail;
      for (const std::string& key : keys_) {
        const auto found = configuration.find(key);
        tail.push_back({found == configuration.end() ? "" : without_quotes(found->second)});
      }
      const std::string name =
          std::filesystem::path(run.record.folder).lexically_relative(folder_).generic_string();
      for (const auto& [metric, series] : run.record.series) {
        for (const ab::MetricPoint& point : series) {
          ExportRow row{{name}, {run.record.status}, {metric}};
          for (const double value : {static_cast<double>(point.step), point.value, point.wall_s,
                                     point.samples, point.tokens, point.bytes_sent})
            row.push_back({"", value, true});
          row.insert(row.end(), tail.begin(), tail.end());
          write(row);
        }
      }
    }
  }

 private:
  const std::vector<Run>& runs_;
  const std::string& folder_;
  std::vector<std::string> keys_;
};

std::string as_csv(const LongTable& table) {
  std::string out;
  const auto line = [&](const std::vector<std::string>& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) out += (i == 0 ? "" : ",") + csv_field(fields[i]);
    out += "\n";
  };
  line(table.columns());
  table.each_row([&](const ExportRow& row) {
    std::vector<std::string> fields;
    for (const ExportCell& cell : row) fields.push_back(cell.is_number ? shortest(cell.value) : cell.text);
    line(fields);
  });
  return out;
}

/// JSON has no number for NaN and infinity: they are texts.
std::string as_jsonl(const LongTable& table) {
  std::string out;
  const std::vector<std::string> columns = table.columns();
  table.each_row([&](const ExportRow& row) {
    nlohmann::ordered_json json;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const ExportCell& cell = row[i];
      if (!cell.is_number)
        json[columns[i]] = cell.text;
      else if (std::isfinite(cell.value))
        json[columns[i]] = cell.value;
      else
        json[columns[i]] = shortest(cell.value);
    }
    out += json.dump() + "\n";
  });
  return out;
}

int run_export_study(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kExportStudy, {"folder"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("folder") == 0)
    fail_config("tenon export-study: which folder? usage: tenon export-study DIR [options]");
  const auto to = parsed.values["to"].as<std::string>();
  if (to != "csv" && to != "jsonl")
    fail_config(fmt::format("tenon export-study: --to {}: expected csv or jsonl", to));
  const auto folder = parsed.values["folder"].as<std::vector<std::string>>()[0];
  std::vector<std::string> unreadable;
  const std::vector<Run> runs = report::load_runs(folder, unreadable);
  for (const std::string& reason : unreadable) std::cerr << "tenon: warning: left out: " << reason << "\n";
  if (runs.empty()) fail_config(fmt::format("tenon export-study: there is no run below '{}'", folder));
  std::vector<std::string> keys = parsed.values.count("columns") > 0
                                      ? split_at_commas(parsed.values["columns"].as<std::string>())
                                      : differing_keys(runs);
  for (const std::string& key : keys) {
    const bool known = std::any_of(runs.begin(), runs.end(),
                                   [&](const Run& run) { return configuration_of(run).contains(key); });
    if (!known)
      fail_config(
          fmt::format("tenon export-study: --columns: no run below '{}' has the key '{}'", folder, key));
  }
  const LongTable table(runs, folder, std::move(keys));
  const std::string text = to == "csv" ? as_csv(table) : as_jsonl(table);
  if (parsed.values.count("out") == 0) {
    std::cout << text;
    return 0;
  }
  const auto out = parsed.values["out"].as<std::string>();
  make_posix_files()->write_text_atomically(out, text);
  std::cout << out << "\n";
  return 0;
}

}  // namespace

const Command kExportStudy{"export-study", "DIR [options]",
                           "Write the metrics of all runs below a folder as one table.", run_export_study,
                           declare_export_study};

}  // namespace tenon::cli
