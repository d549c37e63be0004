import { serve } from "holdfast-agent";
import { greeter } from "./agent.js";

serve(greeter);
