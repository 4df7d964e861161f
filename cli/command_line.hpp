// Shared by all commands: parsing without prefix guessing, help that fits a terminal, and the registry of a
// run.
#pragma once

#include <tenon/config.hpp>
#include <tenon/runtime.hpp>

#include <boost/program_options.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::cli {

namespace po = boost::program_options;

/// One command. `arguments` follow the command's name.
struct Command {
  const char* name;
  const char* synopsis;  ///< "CONFIG [options]"
  const char* summary;   ///< one line
  int (*run)(const std::vector<std::string>& arguments);
  void (*declare)(po::options_description& options) =
      nullptr;  ///< its options; null when it has none but --help
};

/// All commands, in the order of the help.
std::span<const Command* const> commands();
/// Throws Error(kConfig) with the nearest name.
const Command& find_command(const std::string& name);

/// An option as help, manual pages and completion show it.
struct OptionText {
  std::string name, argument, text;  ///< argument is "" for a switch
};
/// Option texts of a command, parsed from descriptions "ARGUMENT  text", or "text" for a switch; --help is
/// the last.
std::vector<OptionText> option_texts(const Command& command);

/// Parsed options of a command, or a request for help that was already answered.
struct Parsed {
  po::variables_map values;
  bool helped = false;
};

/// `positional` names the options that words without a dash fill, in order; the last one may repeat. Adds
/// --help. Unknown options are Error(kConfig) with the nearest one.
Parsed parse(const Command& command, const std::vector<std::string>& positional,
             const std::vector<std::string>& arguments);

/// Declares --verify, which parse() obeys: all digests of plugins and data are computed, and the cache of
/// digests must say the same.
void declare_verify(po::options_description& options);

/// Loads a configuration and discovers the plugins that it and the environment name.
Config load_run(Runtime& runtime, const std::string& path, const std::vector<std::string>& sets);
/// The configuration of a run after its check: defaults filled in, paths absolute.
Config resolved_config(const Config& config);

/// Adds an observer of this type to those of the configuration. Unchanged if it has one already.
Config with_observer(const Config& config, const std::string& type);

/// Prints a line of progress on standard error: on a terminal it replaces the previous one until it is
/// finished; elsewhere only finished lines appear.
void print_progress(bool terminal, const std::string& line, bool finished);

/// "a,b" as its parts; empty ones are left out.
std::vector<std::string> split_at_commas(const std::string& text);

/// The whole command line as one text, for manifests.
std::string quoted_command_line(const std::vector<std::string>& arguments);

extern const Command kTrain;
extern const Command kAb;
extern const Command kCheck;
extern const Command kInspect;
extern const Command kDoctor;
extern const Command kReport;
extern const Command kManual;
extern const Command kCompletion;
extern const Command kCompare;
extern const Command kConformance;
extern const Command kEvaluate;
extern const Command kExport;
extern const Command kExportStudy;
extern const Command kFuzz;
extern const Command kGenerate;
extern const Command kGraph;
extern const Command kImport;
extern const Command kLaunch;
extern const Command kNewPlugin;
extern const Command kPower;
extern const Command kQuantize;
extern const Command kReplay;
extern const Command kReproduce;
extern const Command kSimulate;
extern const Command kTokenize;
extern const Command kTransform;

}  // namespace tenon::cli
