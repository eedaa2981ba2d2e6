package weir

import "fmt"

var exported *Plugin

// Export makes a plugin the one that this program is. To be called once, from an init function of package main.
func Export(plugin Plugin) {
	if exported != nil {
		panic(fmt.Sprintf("plugins %q and %q are both exported: a component is one", exported.Descriptor.Name, plugin.Descriptor.Name))
	}
	plugin.Descriptor = plugin.Descriptor.WithDefaults()
	exported = &plugin
}
