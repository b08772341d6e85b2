"""What a backfill consists of on this side of Spark: its plan, its folder, its submission, and its delivery."""
