// Makes one virtual function of one object of a loaded component fail. The object gets a copy of its table of
// virtual functions in which that entry is another function; nothing of the component is rebuilt, and its
// plugin stays the one that the registry names. For processes that end soon: nothing is put back.
#pragma once

#include "functions.hpp"

#include <tenon/registry.hpp>

#include <string>

namespace tenon::calls {

enum class Way { kError, kNumber, kCrash, kHang };

/// How the object that fails comes about.
enum class Origin {
  kComponent,  ///< it is the component
  kOffered,    ///< query(id) of the component returns it
  kAnswered,   ///< query(id) of the component returns it from now on
  kBound,      ///< LinearSite: Precision::bind made it
  kOpened,     ///< Communicator: Transport::open made it
  kLookups,    ///< RowLookupHandler: a layer offers it to RowService
  kReducer,    ///< MeanReducer: a strategy gets it by MeanUser::take_means_by
};

struct Sabotage {
  std::string kind, type;  ///< of the component
  Origin origin = Origin::kComponent;
  std::string id = {};     ///< kOffered, kAnswered
  void* answer = nullptr;  ///< kAnswered
  Function function = {};  ///< of the interface of the object
  Way way = Way::kError;
  int rank = 0;  ///< whose component fails; -1 = every one's
};

inline constexpr const char* kWords = "the sabotaged function was called";

/// From now on the component is made so. Once a process. `called` becomes true when the function is called.
void arrange(Registry& registry, const Functions& contracts, const Sabotage& sabotage, volatile bool* called);
/// Whether objects that are made from now on fail.
void arm(bool armed);

}  // namespace tenon::calls
