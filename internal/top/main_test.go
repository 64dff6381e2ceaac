package top

import "flag"

var update = flag.Bool("update", false, "rewrite the screens in testdata")
