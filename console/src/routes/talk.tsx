export { TalkPage } from "../talk/TalkPage";
