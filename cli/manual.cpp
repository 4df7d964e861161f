// tenon manual and tenon completion: manual pages and shell completion, made from the commands' own option
// tables, so that they always agree with --help.
#include "command_line.hpp"

#include "record/build_info.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>

namespace tenon::cli {
namespace {

/// Text for troff: a leading dot would be a request, a dash a hyphen, a backslash an escape.
std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string page_head(const std::string& name, const std::string& summary) {
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(".TH {} 1 \"\" \"Tenon {}\" \"Tenon\"\n.SH NAME\n{} \\- {}\n", roff(title),
                     build_info().version, roff(name), roff(summary));
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n0 ok, 1 failed run, 2 usage or configuration error, 3 plugin error, 4 lost device.\n";

std::string page(const Command& command) {
  std::string out = page_head(fmt::format("tenon-{}", command.name), command.summary);
  out += fmt::format(".SH SYNOPSIS\n.B tenon {}\n{}\n.SH OPTIONS\n", command.name, roff(command.synopsis));
  for (const OptionText& option : option_texts(command)) {
    out += fmt::format(".TP\n\\fB\\-\\-{}\\fR{}\n{}\n", roff(option.name),
                       option.argument.empty() ? "" : " \\fI" + roff(option.argument) + "\\fR",
                       roff(option.text));
  }
  return out + kExitStatus + ".SH SEE ALSO\n.BR tenon (1)\n";
}

std::string overview() {
  std::string out = page_head("tenon", "training in which every decision is a plugin");
  out += ".SH SYNOPSIS\n.B tenon\n\\fICOMMAND\\fR [options]\n.SH COMMANDS\n";
  for (const Command* command : commands())
    out += fmt::format(".TP\n.BR tenon\\-{} (1)\n{}\n", command->name, roff(command->summary));
  return out + kExitStatus;
}

std::string names_of(const Command& command) {
  std::string words;
  for (const OptionText& option : option_texts(command))
    words += (words.empty() ? "--" : " --") + option.name;
  return words;
}

std::string bash() {
  std::vector<std::string_view> names;
  std::string cases;
  for (const Command* command : commands()) {
    names.push_back(command->name);
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->name, names_of(*command));
  }
  return "# Completion of tenon for bash.\n"
         "_tenon() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} words=\"\"\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         fmt::format("{}", fmt::join(names, " ")) +
         " --help --version\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  case $word in\n"
         "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
         "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _tenon tenon\n";
}

/// Quotes for single quotes of a shell, without characters that zsh's _arguments treats as structure.
std::string single_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      out += fmt::format("\\{}", c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh() {
  std::string names, cases;
  for (const Command* command : commands()) {
    names += fmt::format("    '{}:{}'\n", command->name, single_quoted(command->summary));
    cases += fmt::format("    {}) _arguments", command->name);
    for (const OptionText& option : option_texts(*command)) {
      cases += fmt::format(" '*--{}[{}]{}'", option.name, single_quoted(option.text),
                           option.argument.empty() ? "" : ":" + single_quoted(option.argument) + ":_files");
    }
    cases += " '*:file:_files' ;;\n";
  }
  return "#compdef tenon\n"
         "_tenon() {\n  local -a names=(\n" +
         names +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n    _describe command names\n    return\n  fi\n"
         "  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
         "  case $name in\n" +
         cases + "  esac\n}\n_tenon \"$@\"\n";
}

std::string fish() {
  std::string out = "# Completion of tenon for fish.\n";
  for (const Command* command : commands()) {
    out += fmt::format("complete -c tenon -n __fish_use_subcommand -f -a {} -d '{}'\n", command->name,
                       single_quoted(command->summary));
    for (const OptionText& option : option_texts(*command)) {
      out += fmt::format("complete -c tenon -n '__fish_seen_subcommand_from {}' -l {}{} -d '{}'\n",
                         command->name, option.name, option.argument.empty() ? "" : " -r",
                         single_quoted(option.text));
    }
  }
  return out;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  if (!(file << text) || !file.flush()) fail_run(fmt::format("{}: cannot be written", path.string()));
}

void declare_manual(po::options_description& options) {
  options.add_options()("out", po::value<std::string>(),
                        "DIR  write all pages and completions below DIR, laid out as in /usr/share");
}

int run_manual(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kManual, {"command"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("out") > 0) {
    const std::filesystem::path share = parsed.values["out"].as<std::string>();
    write(share / "man/man1/tenon.1", overview());
    for (const Command* command : commands())
      write(share / fmt::format("man/man1/tenon-{}.1", command->name), page(*command));
    write(share / "bash-completion/completions/tenon", bash());
    write(share / "zsh/vendor-completions/_tenon", zsh());
    write(share / "fish/vendor_completions.d/tenon.fish", fish());
    return 0;
  }
  if (parsed.values.count("command") == 0) {
    std::cout << overview();
    return 0;
  }
  std::cout << page(find_command(parsed.values["command"].as<std::vector<std::string>>()[0]));
  return 0;
}

int run_completion(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kCompletion, {"shell"}, arguments);
  if (parsed.helped) return 0;
  const std::string shell =
      parsed.values.count("shell") > 0 ? parsed.values["shell"].as<std::vector<std::string>>()[0] : "";
  if (shell == "bash") {
    std::cout << bash();
  } else if (shell == "zsh") {
    std::cout << zsh();
  } else if (shell == "fish") {
    std::cout << fish();
  } else {
    fail_config(fmt::format(
        "tenon completion: expected bash, zsh or fish, found '{}'; in bash: source <(tenon completion "
        "bash)",
        shell));
  }
  return 0;
}

}  // namespace

const Command kManual{"manual", "[COMMAND] [options]", "Print a manual page: tenon manual train | man -l -",
                      run_manual, declare_manual};
const Command kCompletion{"completion", "bash|zsh|fish",
                          "Print completion for a shell: source <(tenon completion bash)", run_completion,
                          nullptr};

}  // namespace tenon::cli
