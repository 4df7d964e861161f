// Layers of a configuration: the order in which files apply, and how two of them merge. The rules are in
// docs/decisions/0002-layers-and-type-changes.md. Text becomes values in toml_reader.cpp, the only user of
// toml++.
#pragma once

#include <tenon/config.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

/// Throws Error(kConfig) "<name>:<line>:<column>: ..." on bad syntax, dates, and nesting beyond 64 levels.
Value read_toml(std::string_view text, const std::string& name);

/// Stacks layers, lowest first. Keys of core sections survive a change of the table's `type`.
class LayerStack {
 public:
  /// Reads `path` and, before it, what it extends. Throws Error(kConfig) with the chain of extends.
  void add_file(const std::string& path);
  /// The same for text that is already in memory.
  void add_text(std::string_view text, const std::string& name);
  /// All `--set` of a command line are one layer, so their order matters only among equal keys.
  void add_sets(const std::vector<std::string>& sets);

  Value root;
  std::vector<std::string> files;
  std::vector<Config::Dropped> dropped;

 private:
  struct Reference {
    std::string path;
    Origin origin;     ///< of the text in extends; file "" for the outermost
    std::string said;  ///< as written
  };
  /// Where the file is that `said` names at `origin`, in the order of resolve_path().
  Reference find_reference(const std::string& said, const Origin& origin) const;
  void add_reference(const Reference& reference);
  void add_layer(Value layer);
  void merge(Value layer);
  [[noreturn]] void fail_reference(const Reference& reference, const std::string& what) const;

  std::vector<Reference> chain_;  // from the outermost file to the one being read
  std::set<std::string> seen_;    // canonical paths of files that apply already
};

/// Reads a text file of at most 16 MiB; returns false and sets `reason` when that fails.
bool read_text_file(const std::string& path, std::string& text, std::string& reason);

/// One `--set` as a table of nested tables; "+key" is kept in the last part.
Value parse_set(const std::string& text);

/// Merges `layer` over `base` at the table `path` ("" = root), recording dropped values.
void merge_tables(Value& base, Value&& layer, const std::string& path, std::vector<Config::Dropped>& dropped);

}  // namespace config
TENON_ABI_END
