// Small runs of under a second that `tenon fuzz` varies: a model, its data and, where it is sharded, its
// mesh.
#pragma once

#include <tenon/config.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::fuzz {

struct Base {
  std::string name;
  Value root;            ///< [data], [model], [parallel] grid; more where a file was given
  bool has_rows = true;  ///< may have row tables, so that tiers can be drawn
  bool is_file = false;  ///< the user's: its components are kept half of the time
};

/// Each model of this tree. `folder` has what write_sums() wrote; "": without the bases that read it.
std::vector<Base> small_bases(const std::string& folder);
/// A few sums as conversations, where the folder has none.
void write_sums(const std::string& folder);

/// The user's run, made short. `root` has absolute paths.
Base base_of_run(Value root);

/// Sets the member `dotted` of a tree of tables, which are added where they are missing.
void set_member(Value& root, std::string_view dotted, Value value);
/// It, or null.
const Value* find_member(const Value& root, std::string_view dotted);
/// Removes it where it is there.
void erase_member(Value& root, std::string_view dotted);

}  // namespace tenon::fuzz
