// tenon inspect: shows what plugins offer. Without an argument only tags are read; an ID loads its plugin;
// for a FILE the tag is read, then it is loaded in a child process, which isolates crashes. With --tables: a
// run's use of its tables.
#include "command_line.hpp"
#include "inspect_file.hpp"
#include "inspect_print.hpp"
#include "table_record.hpp"

#include "config/suggest.hpp"
#include "record/run_folder.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

Format format_of(const Parsed& parsed) {
  if (parsed.values.count("json") > 0) return Format::kJson;
  return parsed.values.count("markdown") > 0 ? Format::kMarkdown : Format::kText;
}

int inspect_file(const std::string& file, bool load, Format format) {
  const FileFacts facts = look_at_file(file, load);
  std::cout << print_file(facts, format) << std::flush;
  if (!facts.reason.empty()) throw Error(ErrorKind::kPlugin, facts.reason);
  return 0;
}

/// Whether the word is a path, and not the id of a component, which may contain a slash as well.
bool is_file(const std::string& word) {
  std::error_code ignored;
  if (word.ends_with(".so") || word.starts_with("/") || word.starts_with(".")) return true;
  return word.find('/') != std::string::npos ? std::filesystem::exists(word, ignored)
                                             : std::filesystem::is_regular_file(word, ignored);
}

/// "optimizer.adamw", "adamw" or "vendor/adamw" -> descriptions; all kinds that have this id.
int inspect_component(Registry& registry, const std::string& word, Format format) {
  const auto dot = word.find('.');
  const std::string kind_word = dot == std::string::npos ? "" : word.substr(0, dot);
  const std::string type = dot == std::string::npos ? word : word.substr(dot + 1);
  const std::string plain = type.substr(type.rfind('/') == std::string::npos ? 0 : type.rfind('/') + 1);
  std::vector<std::string> known;
  std::string out;
  for (const PluginStatus& status : registry.plugins()) {
    for (const PluginStatus::Offer& offer : status.offers) {
      const std::string kind = offer.kind.substr(0, offer.kind.find('/'));
      known.push_back(kind + "." + offer.id);
      const bool alias = std::find(offer.aliases.begin(), offer.aliases.end(), plain) != offer.aliases.end();
      if ((!kind_word.empty() && kind != kind_word) || (offer.id != plain && !alias)) continue;
      const ComponentRef ref = registry.find(offer.kind, type);
      if (ref.plugin != status.id) continue;
      const plugin::PluginDescription whole = plugin::describe(*registry.descriptor(status.id));
      for (const plugin::ComponentDescription& component : whole.components) {
        if (component.kind == offer.kind && component.id == offer.id)
          out += print_component(component, whole, format);
      }
    }
  }
  if (out.empty()) {
    fail_config(fmt::format("no plugin offers '{}'{}\nPlaces searched:\n{}", word,
                            config::suggestion(word, known), registry.places()));
  }
  std::cout << out;
  return 0;
}

int inspect_tables(const std::string& run, Format format) {
  if (format == Format::kMarkdown) fail_config("tenon inspect: --tables prints text or --json, no Markdown");
  const auto files = make_posix_files();
  const RunTables tables = read_tables(*files, open_newest_attempt(*files, run).path);
  std::cout << (format == Format::kJson ? tables_json(tables) : tables_text(tables));
  return 0;
}

void declare_inspect(po::options_description& options) {
  options.add_options()("json", "facts as JSON");
  options.add_options()("markdown", "reference pages as Markdown");
  options.add_options()("no-load", "of a FILE: only what can be read without running its code");
  options.add_options()("tables", "row tables of a RUN: size, touched share, hottest rows, placement");
}

int run_inspect(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kInspect, {"what"}, arguments);
  if (parsed.helped) return 0;
  const Format format = format_of(parsed);
  const bool tables = parsed.values.count("tables") > 0;
  if (tables && parsed.values.count("what") == 0)
    fail_config("tenon inspect: which RUN? usage: tenon inspect RUN --tables");
  if (parsed.values.count("what") > 0) {
    const std::string word = parsed.values["what"].as<std::vector<std::string>>()[0];
    if (tables) return inspect_tables(word, format);
    if (is_file(word)) return inspect_file(word, parsed.values.count("no-load") == 0, format);
    Runtime runtime;
    runtime.discover({});
    return inspect_component(runtime.registry(), word, format);
  }
  Runtime runtime;
  runtime.discover({});
  const auto plugins = runtime.registry().plugins();
  std::cout << print_list(plugins, format);
  if (plugins.empty())
    std::cerr << "no plugin found. Places searched:\n" << runtime.registry().places() << "\n";
  return 0;
}

}  // namespace

const Command kInspect{"inspect", "[ID | FILE.so] [options] | RUN --tables",
                       "Show plugins, components and their options, or a run's tables.", run_inspect,
                       declare_inspect};

}  // namespace tenon::cli
