// The sections of report.html about the origin of the numbers and how to reproduce them.
#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/report_sections.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

namespace tenon::ab {
namespace {

// Entries that differ between any two runs by nature.
bool varies_by_nature(const std::string& key) {
  static constexpr std::string_view kParts[] = {"seed",        "command_line", "start",    "end",
                                                "exit_reason", "parent_run",   "segments", "config_sha256"};
  for (std::string_view part : kParts) {
    if (key.find(part) != std::string::npos) return true;
  }
  return false;
}

// key -> values seen over all runs, with the first run that has each.
std::map<std::string, std::set<std::string>> manifest_values(const Study& study) {
  std::map<std::string, std::set<std::string>> out;
  for (const ArmRuns& arm : study.arms) {
    for (const auto& run : arm.runs) {
      if (!run) continue;
      for (const auto& [key, value] : run->manifest) {
        if (!varies_by_nature(key)) out[key].insert(value);
      }
    }
  }
  return out;
}

std::string joined(const std::set<std::string>& values) {
  return fmt::format("{}", fmt::join(values, " | "));
}

std::string manifest_table(const Study& study) {
  const auto values = manifest_values(study);
  std::vector<TableRow> rows;
  std::vector<std::string_view> differing;
  for (const auto& [key, seen] : values) {
    rows.push_back(
        {{fmt::format("<code>{}</code>", escape_html(key)), escape_html(joined(seen))}, seen.size() > 1});
    if (seen.size() > 1) differing.push_back(key);
  }
  if (rows.empty()) return "";
  std::string out =
      differing.empty()
          ? paragraph("The manifests of all runs agree on program, machine, libraries and data.")
          : paragraph(
                fmt::format("The manifests of the runs do not agree on: {}.", fmt::join(differing, ", ")));
  static constexpr const char* kShort[] = {
      "program.version", "program.git", "program.compiler", "cpu.model", "kernels", "threads", "ranks"};
  std::vector<TableRow> brief;
  for (const char* key : kShort) {
    const auto found = values.find(key);
    if (found == values.end()) continue;
    brief.push_back({{fmt::format("<code>{}</code>", key), escape_html(joined(found->second))}, false});
  }
  if (!brief.empty()) out += table({{"manifest", false}, {"", false}}, brief, "list");
  return out + "<details><summary>All entries of the manifests</summary>\n" +
         table({{"entry", false}, {"value", false}}, rows) + "</details>\n";
}

// Entries by plugin: plugin.vendor.name.id, plugin.vendor.name.sha256, ...
std::string plugin_table(const Study& study) {
  struct Plugin {
    std::string version, sha256, abi;
    std::set<std::size_t> arms;
  };
  std::map<std::string, Plugin>
      plugins;  // by id and file digest: the same id with two digests is worth two rows
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    for (const auto& run : study.arms[a].runs) {
      if (!run) continue;
      for (const auto& [key, value] : run->plugins_lock) {
        if (!key.ends_with(".id")) continue;
        const std::string stem = key.substr(0, key.size() - 3);
        const auto field = [&](const char* name) {
          const auto found = run->plugins_lock.find(stem + name);
          return found == run->plugins_lock.end() ? std::string() : found->second;
        };
        Plugin& p = plugins[value + "\n" + field(".sha256")];
        p.version = field(".version");
        p.sha256 = field(".sha256");
        p.abi = field(".abi");
        p.arms.insert(a);
      }
    }
  }
  if (plugins.empty()) return "";
  const auto unquoted = [](const std::string& text) {
    return text.size() >= 2 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                         : text;
  };
  std::vector<TableRow> rows;
  for (const auto& [id, p] : plugins) {
    std::string arms;
    for (std::size_t a : p.arms) arms += arm_key(a, study.arms[a].arm.name) + " ";
    const std::string digest = unquoted(p.sha256);
    rows.push_back(
        {{fmt::format("<code>{}</code>", escape_html(unquoted(id.substr(0, id.find('\n'))))),
          escape_html(unquoted(p.version)),
          fmt::format("<code title=\"{}\">{}</code>", escape_html(digest), escape_html(digest.substr(0, 16))),
          arms},
         false});
  }
  return "<h3>Plugins</h3>\n" +
         table({{"plugin", false}, {"version", false}, {"SHA-256", false}, {"loaded by", false}}, rows);
}

std::string run_table(const StudyResult& result) {
  const Study& s = result.study;
  std::vector<TableRow> rows;
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    for (std::size_t i = 0; i < s.arms[a].runs.size(); ++i) {
      const auto& run = s.arms[a].runs[i];
      if (!run) {
        rows.push_back({{arm_key(a, s.arms[a].arm.name), std::to_string(s.experiment.seeds[i]), "missing", "",
                         "", "", "", "", ""},
                        false});
        continue;
      }
      const std::optional<double> value = run->final_value(s.experiment.metric);
      rows.push_back({{arm_key(a, s.arms[a].arm.name), std::to_string(s.experiment.seeds[i]),
                       escape_html(run->status), value ? fmt::format("{:.6g}", *value) : "\u2013",
                       quantity(run->steps, Axis::kSteps), quantity(run->samples, Axis::kSamples),
                       s.wall_clock_valid() ? quantity(run->wall_s, Axis::kSeconds) : "\u2013",
                       quantity(run->bytes_sent, Axis::kBytes),
                       fmt::format("<code>{}</code>", escape_html(run->weights_hash.substr(0, 16)))},
                      false});
    }
  }
  return "<details><summary>Every run</summary>\n" +
         table({{"arm", false},
                {"seed", true},
                {"status", false},
                {escape_html(s.experiment.metric), true},
                {"steps", true},
                {"samples", true},
                {"wall time", true},
                {"bytes sent", true},
                {"weights hash", false}},
               rows) +
         "</details>\n";
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                          "_./=:,+-@%") == std::string::npos;
  if (plain) return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string provenance_section(const StudyResult& result) {
  const Study& s = result.study;
  std::string out;
  if (!s.notes.empty()) {
    out += "<ul>\n";
    for (const std::string& note : s.notes) out += fmt::format("<li>{}</li>\n", escape_html(note));
    out += "</ul>\n";
  }
  return section("Where the numbers come from",
                 out + manifest_table(s) + plugin_table(s) + run_table(result));
}

std::string reproduce_section(const StudyResult& result) {
  const Study& s = result.study;
  const Experiment& e = s.experiment;
  std::string out;
  if (!e.path.empty()) {
    out += fmt::format("<pre>tenon ab {} --out {} --jobs {}{}</pre>\n", escape_html(shell_word(e.path)),
                       escape_html(shell_word(s.folder)), s.jobs, s.self_check ? " --aa" : "");
  }
  std::string commands;
  for (const ArmRuns& arm : s.arms) {
    for (const auto& run : arm.runs) {
      if (!run) continue;
      const auto found = run->manifest.find("command_line");
      if (found != run->manifest.end()) commands += found->second + "\n";
    }
  }
  if (!commands.empty()) {
    out += fmt::format("<details><summary>Single runs</summary>\n<pre>{}</pre></details>\n",
                       escape_html(commands));
  }
  out += paragraph(
      "The same program, plugins, thread count and processor give the same bits; compare the weights hashes.",
      "note");
  return section("How to reproduce", out);
}

}  // namespace tenon::ab
