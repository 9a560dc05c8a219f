"""Read and write the formats of monitoring systems; used by collector, import and export."""
