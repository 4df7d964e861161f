// The tier of row_cache.hpp as a file that the program loads; one component says that it tolerates Hogwild
// workers, the other does not.
#include "row_cache.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "acme.row_cache",
                               .version = "1.0.0",
                               .summary = "a small cache of rows"},
             tenon::integration::RowCache<true>, tenon::integration::RowCache<false>)
