// The file of proposal.hpp.
#include "ab/proposal.hpp"

#include "base/file_descriptor.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::string& text) {
  return Value(text).inline_toml();
}

std::string budget_text(const std::string& base, const std::vector<std::string>& changes,
                        const std::vector<std::string>& sets) {
  if (std::any_of(sets.begin(), sets.end(), [](const std::string& s) { return s.starts_with("budget."); }))
    return "";
  const Config run = Config::load(base, changes);
  const Value* steps = run.find("run.steps");
  if (steps == nullptr) {
    fail_config(
        fmt::format("{} has no run.steps, which tells how long a run of each arm takes; add it, or say e.g. "
                    "--set budget.steps=400",
                    base));
  }
  return fmt::format("\n[budget]\nsteps = {}\n", steps->integer());
}

}  // namespace

std::string proposal_text(const std::string& base, const std::vector<std::string>& changes,
                          const std::vector<std::string>& sets) {
  if (changes.empty())
    fail_config("--propose needs at least one KEY=VALUE, e.g. --propose optimizer.lr=3e-3");
  std::vector<std::string> words;
  for (const std::string& change : changes) {
    if (change.find('=') == std::string::npos || change.front() == '=')
      fail_config(fmt::format("--propose: expected KEY=VALUE, found '{}'", change));
    words.push_back(quoted(change));
  }
  const std::string path = fs::absolute(base).lexically_normal().string();
  const std::string question = fmt::format("Is {} with {} better than without?",
                                           fs::path(base).filename().string(), fmt::join(changes, ", "));
  const std::string text = fmt::format(
      "question = {}\nbase = {}\nseeds = {{ from = 1 }}\n\n[sequential]\nmax_seeds = 20\n{}\n"
      "[[arm]]\nname = \"base\"\n\n[[arm]]\nname = \"proposal\"\nset = [{}]\n",
      quoted(question), quoted(path), budget_text(base, changes, sets), fmt::join(words, ", "));
  return "# Written by tenon ab --propose; tenon ab takes it as it is.\n" +
         to_toml(Config::parse(text, "the proposal", sets).root(), false);
}

std::string write_proposal(const std::string& text, std::string& folder, bool replace) {
  if (folder.empty()) {
    folder = "out/propose-" + xxh3_128_of(std::as_bytes(std::span(text))).substr(0, 12);
  }
  const fs::path path = fs::path(folder) / "experiment.toml";
  const std::optional<std::string> there = base::read_file(path);
  if (there && *there != text && !replace) {
    fail_config(
        fmt::format("{} is another proposal; name another --out, or --restart to begin anew", path.string()));
  }
  const auto files = make_posix_files();
  files->make_directories(folder);
  files->write_text_atomically(path.string(), text);
  return path.string();
}

}  // namespace tenon::ab
