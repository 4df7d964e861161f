// The virtual functions of the contracts, as the headers declare them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tenon::calls {

struct Function {
  std::string name;  ///< "~" = the destructor, which takes two places
  int place = 0;     ///< in the table of virtual functions
  bool no_throw = false;
};

using Functions = std::map<std::string, std::vector<Function>>;  ///< by interface, in order of declaration

/// Reads every header of `folder`. A class without virtual functions of its own is none.
Functions read_functions(const std::string& folder);

}  // namespace tenon::calls
