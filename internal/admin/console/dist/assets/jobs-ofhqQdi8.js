<<<<<<<< HEAD:internal/admin/console/dist/assets/jobs-ofhqQdi8.js
import{d as e}from"./index-BD0xXVFF.js";function t(e){return e.state===`done`||e.state===`canceled`}function n(e){return{waiting:`Waiting`,running:`Running`,canceling:`Stopping`,canceled:`Stopped`,done:`Done`}[e.state]}function r(e){return e.state===`done`?e.failed>0?`warn`:`good`:e.state===`canceled`?`neutral`:`info`}function i(t){return e(t.filter)}export{n as i,i as n,r,t};
========
import{h as e}from"./index-DxYapTDQ.js";function t(e){return e.state===`done`||e.state===`canceled`}function n(e){return{waiting:`Waiting`,running:`Running`,canceling:`Stopping`,canceled:`Stopped`,done:`Done`}[e.state]}function r(e){return e.state===`done`?e.failed>0?`warn`:`good`:e.state===`canceled`?`neutral`:`info`}function i(t){return e(t.filter)}export{n as i,i as n,r,t};
>>>>>>>> 4a42c29f (Show a task as one conversation and one waterfall):internal/admin/console/dist/assets/jobs-BjyGk36h.js
